#include "pipedream/plan/work_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr double kPicosecondsPerMs = 1e9;
constexpr double kMostPicoseconds = 2e18;  // a quarter of what 64 bits hold: sums of two totals still fit
constexpr double kMostBytes = 2e18;

std::int64_t picoseconds(double ms) { return std::llround(ms * kPicosecondsPerMs); }

void check_totals(const Profile& profile) {
  double ms = 0, bytes = 0;
  for (const LayerProfile& layer : profile.layers) {
    ms += layer.forward_ms + layer.backward_ms + layer.update_ms;
    bytes += static_cast<double>(layer.parameter_bytes) + static_cast<double>(layer.total_output_bytes()) +
             static_cast<double>(layer.stashed_bytes.value_or(0));
  }
  if (ms * kPicosecondsPerMs > kMostPicoseconds)
    throw InputError(profile.model, fmt::format("the times of all layers sum up to {} ms, too much to plan with", ms),
                     "check the unit: milliseconds");
  if (bytes > kMostBytes)
    throw InputError(profile.model, fmt::format("the sizes of all layers sum up to {} bytes, too much to plan with", bytes), "check the unit: bytes");
}

// Takes one output of several: the bytes are those of its source.
bool is_view(const LayerProfile& layer) { return layer.description.rfind("__getitem__", 0) == 0; }

Work work_of(const Profile& profile, int index) {
  if (is_input_layer(profile, index)) return {};
  const LayerProfile& layer = profile.layers[static_cast<std::size_t>(index)];
  return {picoseconds(layer.forward_ms), picoseconds(layer.backward_ms), picoseconds(layer.update_ms), layer.parameter_bytes,
          layer.stashed_bytes.value_or(is_view(layer) ? 0 : layer.total_output_bytes())};
}

// Strongly connected components of the layer graph with a back edge per tie: a component is what cannot be taken apart. (Tarjan, iterative.)
class Components {
 public:
  explicit Components(const std::vector<std::vector<int>>& next)
      : next_(next), index_(next.size(), -1), low_(next.size(), 0), component_(next.size(), -1) {
    for (std::size_t v = 0; v < next.size(); ++v)
      if (index_[v] < 0) visit(static_cast<int>(v));
  }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int of(int v) const { return component_[static_cast<std::size_t>(v)]; }

 private:
  void visit(int root) {
    std::vector<std::pair<int, std::size_t>> calls{{root, 0}};
    open(root);
    while (!calls.empty()) {
      auto& [v, edge] = calls.back();
      const auto& out = next_[static_cast<std::size_t>(v)];
      if (edge < out.size()) {
        const int w = out[edge++];
        if (index_[static_cast<std::size_t>(w)] < 0) {
          open(w);
          calls.emplace_back(w, 0);
        } else if (component_[static_cast<std::size_t>(w)] < 0) {
          low_[static_cast<std::size_t>(v)] = std::min(low_[static_cast<std::size_t>(v)], index_[static_cast<std::size_t>(w)]);
        }
        continue;
      }
      const int done = v;
      calls.pop_back();
      if (!calls.empty()) {
        int& low = low_[static_cast<std::size_t>(calls.back().first)];
        low = std::min(low, low_[static_cast<std::size_t>(done)]);
      }
      if (low_[static_cast<std::size_t>(done)] == index_[static_cast<std::size_t>(done)]) close(done);
    }
  }
  void open(int v) {
    index_[static_cast<std::size_t>(v)] = low_[static_cast<std::size_t>(v)] = time_++;
    stack_.push_back(v);
  }
  void close(int v) {
    for (int w = -1; w != v;) {
      w = stack_.back();
      stack_.pop_back();
      component_[static_cast<std::size_t>(w)] = count_;
    }
    ++count_;
  }

  const std::vector<std::vector<int>>& next_;
  std::vector<int> index_, low_, component_, stack_;
  int time_ = 0, count_ = 0;
};

std::vector<int> component_of_layers(const Profile& profile, bool join_ties) {
  std::vector<std::vector<int>> next(profile.layers.size());
  for (const ProfileEdge& edge : profile.edges) next[static_cast<std::size_t>(edge.source)].push_back(edge.target);
  if (join_ties)
    for (const ParameterTie& tie : profile.ties)
      for (std::size_t i = 0; i < tie.layers.size(); ++i)  // a ring through the tied layers
        next[static_cast<std::size_t>(tie.layers[i])].push_back(tie.layers[(i + 1) % tie.layers.size()]);
  std::vector<std::set<int>> sources(profile.layers.size());
  std::vector<char> is_sink(profile.layers.size(), 1);
  for (const ProfileEdge& edge : profile.edges) {
    sources[static_cast<std::size_t>(edge.target)].insert(edge.source);
    is_sink[static_cast<std::size_t>(edge.source)] = 0;
  }
  for (std::size_t v = 0; v < next.size(); ++v)
    if (is_sink[v] != 0 && sources[v].size() == 1 && work_of(profile, static_cast<int>(v)) == Work{}) next[v].push_back(*sources[v].begin());
  const Components components(next);
  std::vector<int> result(profile.layers.size());
  for (std::size_t v = 0; v < result.size(); ++v) result[v] = components.of(static_cast<int>(v));
  return result;
}

// Numbers the components topologically, the one whose first layer comes first in the profile's order first.
std::vector<int> number_components(const Profile& profile, const std::vector<int>& component) {
  const int count = 1 + *std::max_element(component.begin(), component.end());
  const std::vector<int> order = topological_order(profile);
  std::vector<int> first(static_cast<std::size_t>(count), -1), waiting(static_cast<std::size_t>(count), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    int& at = first[static_cast<std::size_t>(component[static_cast<std::size_t>(order[i])])];
    if (at < 0) at = static_cast<int>(i);
  }
  std::vector<std::set<int>> next(static_cast<std::size_t>(count));
  for (const ProfileEdge& edge : profile.edges) {
    const int a = component[static_cast<std::size_t>(edge.source)], b = component[static_cast<std::size_t>(edge.target)];
    if (a != b && next[static_cast<std::size_t>(a)].insert(b).second) ++waiting[static_cast<std::size_t>(b)];
  }
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> ready;
  for (int c = 0; c < count; ++c)
    if (waiting[static_cast<std::size_t>(c)] == 0) ready.emplace(first[static_cast<std::size_t>(c)], c);
  std::vector<int> number(static_cast<std::size_t>(count), -1);
  int used = 0;
  while (!ready.empty()) {
    const int c = ready.top().second;
    ready.pop();
    number[static_cast<std::size_t>(c)] = used++;
    for (const int b : next[static_cast<std::size_t>(c)])
      if (--waiting[static_cast<std::size_t>(b)] == 0) ready.emplace(first[static_cast<std::size_t>(b)], b);
  }
  PD_CHECK(used == count, "{} of {} components sorted", used, count);
  return number;
}

// Input layers are no nodes: their node is -1 from here on.
void take_inputs_out(const Profile& profile, WorkGraph& graph, std::vector<int>& node_of) {
  std::vector<int> number(graph.work.size(), -1);
  std::size_t kept = 0;
  for (std::size_t node = 0; node < graph.work.size(); ++node) {
    if (graph.layers[node].size() == 1 && is_input_layer(profile, graph.layers[node].front())) {
      graph.inputs.push_back(graph.layers[node].front());
      continue;
    }
    number[node] = static_cast<int>(kept);
    graph.layers[kept] = graph.layers[node];
    graph.work[kept] = graph.work[node];
    ++kept;
  }
  graph.layers.resize(kept);
  graph.work.resize(kept);
  for (int& node : node_of) node = number[static_cast<std::size_t>(node)];
}

// One flow per output tensor that some edge names; an edge of all outputs reads their sum.
void add_flows(const Profile& profile, const std::vector<int>& node_of, WorkGraph& graph) {
  std::map<std::pair<int, int>, std::set<int>> readers;  // (layer, output) -> nodes
  for (const ProfileEdge& edge : profile.edges) {
    const int outputs = static_cast<int>(profile.layers[static_cast<std::size_t>(edge.source)].output_bytes.size());
    const int target = node_of[static_cast<std::size_t>(edge.target)];
    if (edge.output != ProfileEdge::kAllOutputs) readers[{edge.source, edge.output}].insert(target);
    for (int o = 0; edge.output == ProfileEdge::kAllOutputs && o < std::max(outputs, 1); ++o) readers[{edge.source, o}].insert(target);
  }
  // Outputs of a layer that go to the same nodes travel together.
  std::map<std::pair<int, std::vector<int>>, std::int64_t> flows;
  for (const auto& [key, nodes] : readers) {
    const auto [layer, output] = key;
    if (node_of[static_cast<std::size_t>(layer)] < 0) continue;
    const LayerProfile& source = profile.layers[static_cast<std::size_t>(layer)];
    std::vector<int> targets(nodes.begin(), nodes.end());
    const int node = node_of[static_cast<std::size_t>(layer)];
    targets.erase(std::remove(targets.begin(), targets.end(), node), targets.end());
    if (targets.empty()) continue;
    const bool free = is_input_layer(profile, layer) || source.output_bytes.empty();
    flows[{layer, targets}] += free ? 0 : source.output_bytes[static_cast<std::size_t>(output)];
  }
  for (const auto& [key, bytes] : flows) graph.flows.push_back({node_of[static_cast<std::size_t>(key.first)], key.second, bytes});
  std::sort(graph.flows.begin(), graph.flows.end(),
            [](const Flow& a, const Flow& b) { return std::tie(a.source, a.targets, a.bytes) < std::tie(b.source, b.targets, b.bytes); });
}

void add_neighbours(WorkGraph& graph) {
  const auto n = static_cast<std::size_t>(graph.size());
  std::vector<std::set<int>> targets(n), sources(n);
  for (const Flow& flow : graph.flows)
    for (const int target : flow.targets) {
      targets[static_cast<std::size_t>(flow.source)].insert(target);
      sources[static_cast<std::size_t>(target)].insert(flow.source);
    }
  for (std::size_t v = 0; v < n; ++v) {
    graph.targets.emplace_back(targets[v].begin(), targets[v].end());
    graph.sources.emplace_back(sources[v].begin(), sources[v].end());
  }
}

}  // namespace

std::vector<int> strong_components(int nodes, const std::set<std::pair<int, int>>& edges) {
  std::vector<std::vector<int>> next(static_cast<std::size_t>(nodes));
  for (const auto& [a, b] : edges) next[static_cast<std::size_t>(a)].push_back(b);
  const Components components(next);
  std::vector<int> result;
  for (int v = 0; v < nodes; ++v) result.push_back(components.count() - 1 - components.of(v));  // components close in reverse topological order
  return result;
}

Work& Work::operator+=(const Work& other) {
  forward_ps += other.forward_ps;
  backward_ps += other.backward_ps;
  update_ps += other.update_ps;
  parameter_bytes += other.parameter_bytes;
  stashed_bytes += other.stashed_bytes;
  return *this;
}

Work WorkGraph::total() const {
  Work sum;
  for (const Work& node : work) sum += node;
  return sum;
}

bool is_input_layer(const Profile& profile, int layer) {
  if (profile.layers[static_cast<std::size_t>(layer)].description.rfind("Input", 0) != 0) return false;
  return std::none_of(profile.edges.begin(), profile.edges.end(), [&](const ProfileEdge& edge) { return edge.target == layer; });
}

WorkGraph make_work_graph(const Profile& profile, bool join_ties) {
  validate(profile, profile.model.empty() ? "profile" : profile.model);
  check_totals(profile);
  const std::vector<int> component = component_of_layers(profile, join_ties);
  const std::vector<int> number = number_components(profile, component);
  std::vector<int> node_of(component.size());
  for (std::size_t i = 0; i < component.size(); ++i) node_of[i] = number[static_cast<std::size_t>(component[i])];

  WorkGraph graph;
  graph.layers.resize(number.size());
  graph.work.resize(number.size());
  for (const int layer : topological_order(profile)) {
    const auto node = static_cast<std::size_t>(node_of[static_cast<std::size_t>(layer)]);
    graph.layers[node].push_back(layer);
    graph.work[node] += work_of(profile, layer);
  }
  // A parameter shared by layers of one node is held once.
  for (const ParameterTie& tie : profile.ties) {
    std::set<int> nodes;
    for (const int layer : tie.layers)
      if (!nodes.insert(node_of[static_cast<std::size_t>(layer)]).second)
        graph.work[static_cast<std::size_t>(node_of[static_cast<std::size_t>(layer)])].parameter_bytes -= tie.bytes;
  }
  take_inputs_out(profile, graph, node_of);
  if (graph.size() == 0) throw InputError(profile.model, "nothing is left to plan: every layer is an input", "give the layers that compute");
  add_flows(profile, node_of, graph);
  add_neighbours(graph);
  return graph;
}

}  // namespace pipedream
