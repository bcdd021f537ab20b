#include "pipedream/graph/graph_txt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <unordered_map>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::string_view kSeparator = " -- ";
constexpr const char* kNodeForm =
    "a layer line is ID -- DESCRIPTION -- forward_compute_time=F, backward_compute_time=B, activation_size=A, parameter_size=P";

// One line with its place in the file.
struct Line {
  std::string_view text;
  std::string place;
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const { throw InputError(place, what, hint); }
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0;;) {
    const auto next = text.find(separator, at);
    parts.push_back(text.substr(at, next == std::string_view::npos ? next : next - at));
    if (next == std::string_view::npos) return parts;
    at = next + separator.size();
  }
}

double parse_number(const Line& line, std::string_view text, const char* key) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    line.fail(fmt::format("{} is no number: '{}'", key, text.substr(0, 40)), "write it like 12.345");
  if (value < 0) line.fail(fmt::format("{} is negative: {}", key, text), "times are milliseconds and sizes are bytes, 0 or more");
  return value;
}

std::int64_t parse_size(const Line& line, std::string_view text, const char* key) {
  const double value = parse_number(line, text, key);
  if (value > 1e15) line.fail(fmt::format("{} is more than a petabyte: {}", key, trimmed(text)), "sizes are bytes");
  return std::llround(value);
}

// "key=value" to value; the four keys come in this order.
std::string_view value_of(const Line& line, std::string_view field, const char* key) {
  const auto equals = field.find('=');
  if (equals == std::string_view::npos || trimmed(field.substr(0, equals)) != key)
    line.fail(fmt::format("'{}=' is expected, found '{}'", key, field.substr(0, 40)), kNodeForm);
  return field.substr(equals + 1);
}

std::vector<std::int64_t> parse_outputs(const Line& line, std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.front() != '[') return {parse_size(line, text, "activation_size")};
  if (text.back() != ']') line.fail("the list of activation_size is not closed", "write it like [1024.0; 2048.0]");
  const std::string_view inside = text.substr(1, text.size() - 2);
  std::vector<std::int64_t> sizes;
  if (trimmed(inside).empty()) return sizes;
  for (const std::string_view part : split(inside, ";")) sizes.push_back(parse_size(line, part, "activation_size"));
  return sizes;
}

LayerProfile parse_layer(const Line& line) {
  const auto parts = split(line.text, kSeparator);
  if (parts.size() < 3 || parts.size() > 4) line.fail(fmt::format("{} fields are separated by ' -- ', 3 or 4 are expected", parts.size()), kNodeForm);
  LayerProfile layer;
  layer.name = std::string(trimmed(parts[0]));
  layer.description = std::string(parts[1]);
  if (layer.name.empty()) line.fail("the layer has no ID", kNodeForm);
  const auto fields = split(parts[2], ", ");
  if (fields.size() != 4) line.fail(fmt::format("{} values are separated by ', ', 4 are expected", fields.size()), kNodeForm);
  layer.forward_ms = parse_number(line, value_of(line, fields[0], "forward_compute_time"), "forward_compute_time");
  layer.backward_ms = parse_number(line, value_of(line, fields[1], "backward_compute_time"), "backward_compute_time");
  layer.output_bytes = parse_outputs(line, value_of(line, fields[2], "activation_size"));
  layer.parameter_bytes = parse_size(line, value_of(line, fields[3], "parameter_size"), "parameter_size");
  if (parts.size() == 4) {
    const double id = parse_number(line, value_of(line, parts[3], "stage_id"), "stage_id");
    if (id != std::floor(id) || id > 1e9) line.fail(fmt::format("stage_id is no stage: '{}'", parts[3]), "stages count from 0");
    layer.stage_id = static_cast<int>(id);
  }
  return layer;
}

// What was read so far; edges name layers, so the layers must come first.
class GraphReader {
 public:
  void read(const Line& line) {
    if (line.text.front() == '\t') read_edge(line);
    else read_layer(line);
  }
  Profile take() { return std::move(profile_); }

 private:
  void read_layer(const Line& line) {
    LayerProfile layer = parse_layer(line);
    if (!index_.emplace(layer.name, profile_.num_layers()).second)
      line.fail(fmt::format("two layers have the ID '{}'", layer.name), "give every layer an ID of its own");
    profile_.layers.push_back(std::move(layer));
  }

  void read_edge(const Line& line) {
    const auto ends = split(line.text.substr(1), kSeparator);
    if (ends.size() != 2) line.fail("an edge line is a tab, then SOURCE -- TARGET");
    ProfileEdge edge;
    edge.source = find(line, ends[0]);
    edge.target = find(line, ends[1]);
    if (edge.source == edge.target) line.fail(fmt::format("layer '{}' reads its own output", trimmed(ends[0])), "remove the edge");
    // With one output there is no doubt which one it is.
    edge.output = profile_.layers[static_cast<std::size_t>(edge.source)].output_bytes.size() == 1 ? 0 : ProfileEdge::kAllOutputs;
    if (!seen_.emplace(edge.source, edge.target).second)
      line.fail(fmt::format("the edge '{}' -- '{}' is there twice", trimmed(ends[0]), trimmed(ends[1])), "remove one");
    profile_.edges.push_back(edge);
  }

  int find(const Line& line, std::string_view id) const {
    const auto at = index_.find(std::string(trimmed(id)));
    if (at == index_.end()) line.fail(fmt::format("no layer above has the ID '{}'", trimmed(id)), "layers come before the edges that name them");
    return at->second;
  }

  Profile profile_;
  std::unordered_map<std::string, int> index_;
  std::set<std::pair<int, int>> seen_;
};

// Three digits as the original writes them, more where they are needed to give the same number back.
std::string time_text(double ms) {
  std::string text = fmt::format("{:.3f}", ms);
  double back = 0;
  std::from_chars(text.data(), text.data() + text.size(), back);
  return back == ms ? text : fmt::format("{}", ms);
}

std::string outputs_text(const std::vector<std::int64_t>& sizes) {
  if (sizes.size() == 1) return fmt::format("{}.000", sizes.front());
  std::string text = "[";
  for (std::size_t i = 0; i < sizes.size(); ++i) text += fmt::format("{}{}.0", i == 0 ? "" : "; ", sizes[i]);
  return text + "]";
}

void check_writable(const LayerProfile& layer) {
  const auto broken = [](const std::string& text) { return text.find(kSeparator) != std::string::npos || text.find('\n') != std::string::npos; };
  if (broken(layer.name) || broken(layer.description) || layer.name.find_first_of("\t\r") != std::string::npos)
    throw InputError("graph.txt", fmt::format("the name or description of layer '{}' cannot be written: it holds ' -- ' or a line break", layer.name),
                     "use the JSON form of the profile");
}

}  // namespace

Profile profile_from_graph_txt(const std::string& text, const std::string& file) {
  GraphReader reader;
  int number = 0;
  for (const std::string_view part : split(text, "\n")) {
    ++number;
    if (trimmed(part).empty()) continue;
    const std::string_view content = part.back() == '\r' ? part.substr(0, part.size() - 1) : part;
    reader.read({content, fmt::format("{}:{}", file, number)});
  }
  Profile profile = reader.take();
  std::string stem = std::filesystem::path(file).filename().string();
  profile.model = stem.substr(0, stem.find('.'));
  validate(profile, file);
  return profile;
}

std::string profile_to_graph_txt(const Profile& profile) {
  std::string text;
  for (const LayerProfile& layer : profile.layers) {
    check_writable(layer);
    text += fmt::format("{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}.000", layer.name,
                        layer.description, time_text(layer.forward_ms), time_text(layer.backward_ms), outputs_text(layer.output_bytes),
                        layer.parameter_bytes);
    if (layer.stage_id) text += fmt::format(" -- stage_id={}", *layer.stage_id);
    text += "\n";
  }
  std::set<std::pair<int, int>> written;  // the file cannot say that two outputs of a layer go to the same one
  for (const ProfileEdge& edge : profile.edges)
    if (written.emplace(edge.source, edge.target).second)
      text += fmt::format("\t{} -- {}\n", profile.layers[static_cast<std::size_t>(edge.source)].name,
                          profile.layers[static_cast<std::size_t>(edge.target)].name);
  if (!text.empty()) text.pop_back();  // the original's files end without a line break
  return text;
}

}  // namespace pipedream
