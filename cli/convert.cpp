#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/graph/graph_txt.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/dnn_partitioning.hpp"

namespace pipedream::cli {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string profile_to_dot(const Profile& profile) {
  std::string text = "digraph " + quoted(profile.model.empty() ? "model" : profile.model) + " {\n  node [shape=box];\n";
  for (const LayerProfile& layer : profile.layers)
    text +=
        fmt::format("  {} [label={}];\n", quoted(layer.name), quoted(fmt::format("{} {} + {} ms", layer.name, layer.forward_ms, layer.backward_ms)));
  for (const ProfileEdge& edge : profile.edges)
    text += fmt::format("  {} -> {};\n", quoted(profile.layers[static_cast<std::size_t>(edge.source)].name),
                        quoted(profile.layers[static_cast<std::size_t>(edge.target)].name));
  return text + "}\n";
}

Profile read_any(const std::string& file) {
  const std::string text = file == "-" ? "" : read_file(file);
  if (looks_like_dnn_partitioning(text)) return read_dnn_partitioning(text, file).profile;
  return load_profile(file);
}

void run(const std::string& in, const std::string& out) {
  const Profile profile = read_any(in);
  if (ends_with(out, ".json") || out == "-") write_file(out, profile_to_json(profile));
  else if (ends_with(out, ".txt")) write_file(out, profile_to_graph_txt(profile));
  else if (ends_with(out, ".dot")) write_file(out, profile_to_dot(profile));
  else
    throw UsageError(fmt::format("'{}': the ending does not say what to write", out),
                     "end it in .json (profile), .txt (graph.txt of the original) or .dot");
}

}  // namespace

void add_convert(CLI::App& app) {
  struct Files {
    std::string in, out;
  };
  auto files = std::make_shared<Files>();
  CLI::App* sub = app.add_subcommand("convert", "turn one form of a profile into another, by file endings");
  sub->add_option("IN", files->in, "profile JSON, graph.txt of the original, or a graph of dnn-partitioning; - is standard input")->required();
  sub->add_option("OUT", files->out, "FILE.json, FILE.txt (graph.txt) or FILE.dot; - writes JSON to standard output")->required();
  sub->footer("Examples:\n  pipedream convert vgg16.graph.txt vgg16.json\n  pipedream convert profile.json profile.dot");
  sub->callback([files] { run(files->in, files->out); });
}

}  // namespace pipedream::cli
