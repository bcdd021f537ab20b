#include "pipedream/plan/dnn_partitioning_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr double kMostMs = 4e9, kMostBytes = 4e18;

bool flag(const JsonView& view) { return view.json().is_boolean() ? view.boolean() : view.integer(0) != 0; }

DnnNode read_node(const JsonView& view, double unsupported_ms) {
  DnnNode node;
  node.id = view.at("id").integer();
  node.cpu_ms = view.at("cpuLatency").number(0);
  node.accelerator_ms = flag(view.at("supportedOnFpga")) ? view.at("fpgaLatency").number(0) : unsupported_ms;
  node.backward = flag(view.at("isBackwardNode"));
  if (const auto color = view.find("colorClass")) node.color = color->integer();
  if (const auto size = view.find("size")) node.bytes = size->number(0);
  return node;
}

// Sums are integers of 64 bits from here on.
void check_sums(const DnnGraph& graph, const JsonView& view) {
  double ms = 0, bytes = graph.memory_bytes;
  for (const DnnNode& node : graph.nodes) {
    ms += node.accelerator_ms + node.cpu_ms;
    bytes += node.bytes;
  }
  for (const double transfer : graph.transfer_ms) ms += std::max(transfer, 0.0);
  for (const double output : graph.output_bytes) bytes += output;
  if (ms > kMostMs)
    view.fail(fmt::format("the times of all nodes and transfers sum up to {} ms, too much to plan with", ms), "check the unit: milliseconds");
  if (bytes > kMostBytes)
    view.fail(fmt::format("the sizes of all nodes and the memory sum up to {} bytes, too much to plan with", bytes), "check the unit: bytes");
}

DnnGraph read(const Json& json, const std::string& file) {
  const JsonView view(json, file);
  DnnGraph graph;
  graph.accelerators = view.at("maxFPGAs").index();
  graph.cpus = view.at("maxCPUs").index();
  graph.memory_bytes = view.at("maxSizePerFPGA").number(0);
  std::unordered_map<std::int64_t, int> index;
  for (const JsonView& item : view.at("nodes").elements()) {
    graph.nodes.push_back(read_node(item, 1e6));
    if (!index.emplace(graph.nodes.back().id, static_cast<int>(graph.nodes.size()) - 1).second)
      item.fail("this id is there twice", "give every node an id of its own");
  }
  if (graph.nodes.empty()) view.fail("the graph has no nodes");
  graph.transfer_ms.assign(graph.nodes.size(), -1);
  graph.output_bytes.assign(graph.nodes.size(), 0);
  for (const JsonView& item : view.at("edges").elements()) {
    const auto find = [&](const char* key) {
      const auto at = index.find(item.at(key).integer());
      if (at == index.end()) item.at(key).fail("no node has this id");
      return at->second;
    };
    const int source = find("sourceId"), target = find("destId");
    const double cost = item.at("cost").number(0);
    double& known = graph.transfer_ms[static_cast<std::size_t>(source)];
    if (known >= 0 && std::abs(known - cost) > 1e-6)
      item.fail("the node has edges of different costs", "a producer pays once, so its edges must agree");
    known = cost;
    if (const auto bytes = item.find("size")) {
      double& output = graph.output_bytes[static_cast<std::size_t>(source)];
      output = std::max(output, bytes->number(0));
    }
    graph.edges.emplace_back(source, target);
  }
  check_sums(graph, view);
  return graph;
}

}  // namespace

DnnGraph read_dnn_graph(const std::string& text, const std::string& file) { return read(parse_json(text, file), file); }

DnnClasses::DnnClasses(const DnnGraph& graph, DnnLeaves leaves) : of_(graph.nodes.size()), leaf_(graph.nodes.size(), 0) {
  std::map<std::int64_t, int> by_color;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const DnnNode& node = graph.nodes[i];
    if (node.color < 0) of_[i] = count_++;
    else if (const auto [at, fresh] = by_color.emplace(node.color, count_); fresh) of_[i] = count_++;
    else of_[i] = at->second;
  }
  // Classes on a cycle become one; then they are numbered topologically.
  merge(precedence(graph));
  for (int before = count_ + 1; leaves != DnnLeaves::Apart && count_ > 1 && count_ < before;) {
    before = count_;
    std::set<std::pair<int, int>> edges = precedence(graph);
    edges.merge(leaf_pairs(graph, leaves));
    merge(edges);
  }
  edges_ = precedence(graph);
}

// Forward edges order classes; classes without a forward node are ordered by their backward edges, turned round.
std::set<std::pair<int, int>> DnnClasses::precedence(const DnnGraph& graph) const {
  std::vector<char> forward(static_cast<std::size_t>(count_), 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (!graph.nodes[i].backward) forward[static_cast<std::size_t>(of_[i])] = 1;
  std::set<std::pair<int, int>> result;
  for (const auto& [u, v] : graph.edges) {
    const int a = of(u), b = of(v);
    const bool back_u = graph.nodes[static_cast<std::size_t>(u)].backward, back_v = graph.nodes[static_cast<std::size_t>(v)].backward;
    if (a == b) continue;
    if (!back_u && !back_v) result.emplace(a, b);
    if (back_u && back_v && (forward[static_cast<std::size_t>(a)] == 0 || forward[static_cast<std::size_t>(b)] == 0)) result.emplace(b, a);
  }
  return result;
}

// Pairs of a class without costs and its only neighbour, there and back; of a class without neighbours and some other class.
std::set<std::pair<int, int>> DnnClasses::leaf_pairs(const DnnGraph& graph, DnnLeaves leaves) {
  std::vector<char> costs(static_cast<std::size_t>(count_), 0);
  std::vector<std::set<int>> neighbours(static_cast<std::size_t>(count_));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const DnnNode& node = graph.nodes[i];
    if (node.cpu_ms > 0 || node.accelerator_ms > 0 || (node.bytes > 0 && leaves == DnnLeaves::MergedIfWeightless))
      costs[static_cast<std::size_t>(of_[i])] = 1;
  }
  for (const auto& [u, v] : graph.edges)
    if (of(u) != of(v)) {
      neighbours[static_cast<std::size_t>(of(u))].insert(of(v));
      neighbours[static_cast<std::size_t>(of(v))].insert(of(u));
    }
  std::set<std::pair<int, int>> pairs;
  for (int c = 0; c < count_; ++c) {
    const auto& own = neighbours[static_cast<std::size_t>(c)];
    if (costs[static_cast<std::size_t>(c)] != 0 || own.size() > 1) continue;
    const int other = own.empty() ? (c == 0 ? count_ - 1 : 0) : *own.begin();
    for (std::size_t i = 0; i < graph.nodes.size(); ++i)
      if (of_[i] == c) leaf_[i] = 1;
    pairs.emplace(c, other);
    pairs.emplace(other, c);
  }
  return pairs;
}

void DnnClasses::merge(const std::set<std::pair<int, int>>& edges) {
  const std::vector<int> merged = strong_components(count_, edges);
  for (int& c : of_) c = merged[static_cast<std::size_t>(c)];
  count_ = 1 + *std::max_element(merged.begin(), merged.end());
}

WorkGraph work_graph_of(const DnnGraph& graph, const DnnClasses& classes) {
  WorkGraph result;
  const auto n = static_cast<std::size_t>(classes.count());
  result.layers.resize(n);
  result.work.resize(n);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto c = static_cast<std::size_t>(classes.of(static_cast<int>(i)));
    result.layers[c].push_back(static_cast<int>(i));
    Work work;
    (graph.nodes[i].backward ? work.backward_ps : work.forward_ps) = std::llround(graph.nodes[i].accelerator_ms * kDnnUnitsPerMs);
    work.parameter_bytes = std::llround(graph.nodes[i].bytes);
    result.work[c] += work;
  }
  std::vector<std::set<int>> readers(graph.nodes.size());
  for (const auto& [u, v] : graph.edges)
    if (classes.of(u) != classes.of(v)) readers[static_cast<std::size_t>(u)].insert(classes.of(v));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (!readers[i].empty() && graph.transfer_ms[i] > 0)
      result.flows.push_back(
          {classes.of(static_cast<int>(i)), {readers[i].begin(), readers[i].end()}, std::llround(graph.transfer_ms[i] * kDnnUnitsPerMs)});
  result.targets.resize(n);
  result.sources.resize(n);
  for (const auto& [a, b] : classes.edges()) {
    result.targets[static_cast<std::size_t>(a)].push_back(b);
    result.sources[static_cast<std::size_t>(b)].push_back(a);
  }
  return result;
}

std::vector<Work> cpu_work(const DnnGraph& graph, const WorkGraph& work) {
  std::vector<Work> result(work.work.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    for (const int node : work.layers[c]) {
      const DnnNode& n = graph.nodes[static_cast<std::size_t>(node)];
      (n.backward ? result[c].backward_ps : result[c].forward_ps) += std::llround(n.cpu_ms * kDnnUnitsPerMs);
    }
    result[c].parameter_bytes = work.work[c].parameter_bytes;
  }
  return result;
}

}  // namespace pipedream
