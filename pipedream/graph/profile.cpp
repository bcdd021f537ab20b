#include "pipedream/graph/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <ostream>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

constexpr double kLargestTimeMs = 1e12;                        // 31 years; sums stay exact in 64-bit picoseconds up to a third of this
constexpr std::int64_t kLargestBytes = 1'000'000'000'000'000;  // 1 PB

[[noreturn]] void fail(const std::string& place, const LayerProfile& layer, const std::string& what, const std::string& hint) {
  throw InputError(place, fmt::format("layer '{}': {}", layer.name, what), hint);
}

void check_time(const std::string& place, const LayerProfile& layer, const char* key, double ms) {
  if (!std::isfinite(ms)) fail(place, layer, fmt::format("{} is not a finite number", key), "give milliseconds, 0 if the layer takes no time");
  if (ms < 0) fail(place, layer, fmt::format("{} is negative: {}", key, ms), "times are milliseconds, 0 or more");
  if (ms > kLargestTimeMs) fail(place, layer, fmt::format("{} is {} ms, more than {} ms", key, ms, kLargestTimeMs), "check the unit: milliseconds");
}

void check_bytes(const std::string& place, const LayerProfile& layer, const char* key, std::int64_t bytes) {
  if (bytes < 0) fail(place, layer, fmt::format("{} is negative: {}", key, bytes), "sizes are bytes, 0 or more");
  if (bytes > kLargestBytes) fail(place, layer, fmt::format("{} is {}, more than a petabyte", key, bytes), "check the unit: bytes");
}

void check_layer(const std::string& place, const LayerProfile& layer) {
  check_time(place, layer, "forward_ms", layer.forward_ms);
  check_time(place, layer, "backward_ms", layer.backward_ms);
  if (layer.backward_input_ms) check_time(place, layer, "backward_input_ms", *layer.backward_input_ms);
  if (layer.backward_weight_ms) check_time(place, layer, "backward_weight_ms", *layer.backward_weight_ms);
  check_time(place, layer, "update_ms", layer.update_ms);
  for (const std::int64_t bytes : layer.output_bytes) check_bytes(place, layer, "output_bytes", bytes);
  if (layer.stashed_bytes) check_bytes(place, layer, "stashed_bytes", *layer.stashed_bytes);
  check_bytes(place, layer, "parameter_bytes", layer.parameter_bytes);
  if (layer.stage_id && *layer.stage_id < 0) fail(place, layer, fmt::format("stage_id is negative: {}", *layer.stage_id), "stages count from 0");
}

void check_names(const Profile& profile, const std::string& place) {
  std::unordered_set<std::string_view> seen;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const std::string& name = profile.layers[i].name;
    if (name.empty()) throw InputError(place, fmt::format("layer {} has no name", i), "give every layer a name of its own");
    if (!seen.insert(name).second) throw InputError(place, fmt::format("two layers are named '{}'", name), "give every layer a name of its own");
  }
}

void check_edges(const Profile& profile, const std::string& place) {
  const int n = profile.num_layers();
  std::set<std::tuple<int, int, int>> seen;
  for (std::size_t i = 0; i < profile.edges.size(); ++i) {
    const ProfileEdge& edge = profile.edges[i];
    if (edge.source < 0 || edge.source >= n || edge.target < 0 || edge.target >= n)
      throw InputError(place, fmt::format("edge {} joins layers {} and {}, but layers go from 0 to {}", i, edge.source, edge.target, n - 1),
                       "name layers that exist");
    const LayerProfile &source = profile.layers[static_cast<std::size_t>(edge.source)],
                       &target = profile.layers[static_cast<std::size_t>(edge.target)];
    if (edge.source == edge.target) throw InputError(place, fmt::format("layer '{}' reads its own output", source.name), "remove the edge");
    if (edge.output != ProfileEdge::kAllOutputs && (edge.output < 0 || edge.output >= static_cast<int>(source.output_bytes.size())))
      throw InputError(place,
                       fmt::format("edge '{}' -> '{}' carries output {}, but '{}' has {} outputs", source.name, target.name, edge.output, source.name,
                                   source.output_bytes.size()),
                       "outputs count from 0; add the size of this one to output_bytes");
    if (!seen.emplace(edge.source, edge.target, edge.output).second)
      throw InputError(place, fmt::format("the edge '{}' -> '{}' of output {} is there twice", source.name, target.name, edge.output), "remove one");
  }
}

void check_ties(const Profile& profile, const std::string& place) {
  for (std::size_t i = 0; i < profile.ties.size(); ++i) {
    const ParameterTie& tie = profile.ties[i];
    if (tie.layers.size() < 2) throw InputError(place, fmt::format("tie {} holds {} layers", i, tie.layers.size()), "a tie joins two layers or more");
    for (std::size_t j = 0; j < tie.layers.size(); ++j) {
      if (tie.layers[j] < 0 || tie.layers[j] >= profile.num_layers())
        throw InputError(place, fmt::format("tie {} names layer {}, but layers go from 0 to {}", i, tie.layers[j], profile.num_layers() - 1),
                         "name layers that exist");
      if (j > 0 && tie.layers[j] <= tie.layers[j - 1])
        throw InputError(place, fmt::format("the layers of tie {} are not in ascending order", i), "sort them and name each once");
      const LayerProfile& layer = profile.layers[static_cast<std::size_t>(tie.layers[j])];
      if (tie.bytes > layer.parameter_bytes)
        throw InputError(
            place,
            fmt::format("tie {} has {} bytes, but layer '{}' has only {} bytes of parameters", i, tie.bytes, layer.name, layer.parameter_bytes),
            "the shared parameter counts in parameter_bytes of each of its layers");
    }
    if (tie.bytes < 0) throw InputError(place, fmt::format("the bytes of tie {} are negative: {}", i, tie.bytes), "sizes are bytes, 0 or more");
  }
}

// The layers left over by topological sorting contain a cycle: walk backwards inside them until a layer comes again.
[[noreturn]] void fail_cycle(const Profile& profile, const std::vector<int>& waiting, const std::string& place) {
  const auto n = profile.layers.size();
  std::vector<int> previous(n, -1);
  for (const ProfileEdge& edge : profile.edges)
    if (waiting[static_cast<std::size_t>(edge.source)] > 0 && waiting[static_cast<std::size_t>(edge.target)] > 0)
      previous[static_cast<std::size_t>(edge.target)] = edge.source;
  int at = static_cast<int>(std::find_if(waiting.begin(), waiting.end(), [](int w) { return w > 0; }) - waiting.begin());
  std::vector<int> step(n, -1), path;
  while (step[static_cast<std::size_t>(at)] < 0) {
    step[static_cast<std::size_t>(at)] = static_cast<int>(path.size());
    path.push_back(at);
    at = previous[static_cast<std::size_t>(at)];
  }
  path.erase(path.begin(), path.begin() + step[static_cast<std::size_t>(at)]);
  std::reverse(path.begin(), path.end());
  std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
  std::string text;
  for (std::size_t i = 0; i < path.size() && i < 8; ++i) text += fmt::format("'{}' -> ", profile.layers[static_cast<std::size_t>(path[i])].name);
  if (path.size() > 8) text += "... -> ";
  text += fmt::format("'{}'", profile.layers[static_cast<std::size_t>(path.front())].name);
  throw InputError(place, fmt::format("the layers form a cycle: {}", text), "data must flow one way; remove one of these edges");
}

std::vector<int> sorted_layers(const Profile& profile, const std::string& place) {
  const auto n = profile.layers.size();
  std::vector<int> waiting(n, 0);
  std::vector<std::vector<int>> targets(n);
  for (const ProfileEdge& edge : profile.edges) {
    ++waiting[static_cast<std::size_t>(edge.target)];
    targets[static_cast<std::size_t>(edge.source)].push_back(edge.target);
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < n; ++i)
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  std::vector<int> order;
  order.reserve(n);
  while (!ready.empty()) {
    const int layer = ready.top();
    ready.pop();
    order.push_back(layer);
    for (const int target : targets[static_cast<std::size_t>(layer)])
      if (--waiting[static_cast<std::size_t>(target)] == 0) ready.push(target);
  }
  if (order.size() != n) fail_cycle(profile, waiting, place);
  return order;
}

}  // namespace

std::int64_t LayerProfile::total_output_bytes() const {
  std::int64_t sum = 0;
  for (const std::int64_t bytes : output_bytes) sum += bytes;
  return sum;
}

void validate(const Profile& profile, const std::string& place) {
  if (profile.layers.empty()) throw InputError(place, "the profile has no layers", "measure a model with `pipedream profile`");
  if (profile.micro_batch < 0)
    throw InputError(place, fmt::format("micro_batch is negative: {}", profile.micro_batch), "give samples per micro-batch");
  check_names(profile, place);
  for (const LayerProfile& layer : profile.layers) check_layer(place, layer);
  check_edges(profile, place);
  check_ties(profile, place);
  (void)sorted_layers(profile, place);
}

std::vector<int> topological_order(const Profile& profile) { return sorted_layers(profile, profile.model); }

std::optional<int> find_layer(const Profile& profile, const std::string& name) {
  for (int i = 0; i < profile.num_layers(); ++i)
    if (profile.layers[static_cast<std::size_t>(i)].name == name) return i;
  return std::nullopt;
}

std::string fingerprint(const Profile& profile) {
  // Through the printed form: it is canonical, and two profiles with the same text are equal. Free texts do not matter to a plan.
  Profile essence = profile;
  for (LayerProfile& layer : essence.layers) {
    layer.description.clear();
    layer.stage_id.reset();
  }
  return fmt::format("{:016x}", key_of(profile_to_json(essence)));
}

std::ostream& operator<<(std::ostream& out, const Profile& profile) {
  double forward = 0, backward = 0;
  std::int64_t parameters = 0;
  for (const LayerProfile& layer : profile.layers) {
    forward += layer.forward_ms;
    backward += layer.backward_ms;
    parameters += layer.parameter_bytes;
  }
  return out << fmt::format("profile of {}: {} layers, {} edges, forward {}, backward {}, parameters {}",
                            profile.model.empty() ? "a model" : profile.model, profile.layers.size(), profile.edges.size(), format_ms(forward),
                            format_ms(backward), format_bytes(static_cast<double>(parameters)));
}

}  // namespace pipedream
