#include "pipedream/plan/dnn_partitioning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/dnn_partitioning_search.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kMostCuts = 2'000'000;
constexpr double kMostEntries = 5e7;  // cuts times counts of devices
constexpr double kMostMs = 4e9, kMostBytes = 4e18;
constexpr double kUnitsPerMs = 1e9;  // times and transfer costs alike: picoseconds

struct Node {
  std::int64_t id = 0, color = -1;
  double cpu_ms = 0, accelerator_ms = 0, bytes = 0;
  bool backward = false;
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<std::pair<int, int>> edges;
  std::vector<double> transfer_ms;  // per node, of its output
  std::vector<double> output_bytes;
  int accelerators = 0, cpus = 0;
  double memory_bytes = 0;
};

bool flag(const JsonView& view) { return view.json().is_boolean() ? view.boolean() : view.integer(0) != 0; }

Node read_node(const JsonView& view, double unsupported_ms) {
  Node node;
  node.id = view.at("id").integer();
  node.cpu_ms = view.at("cpuLatency").number(0);
  node.accelerator_ms = flag(view.at("supportedOnFpga")) ? view.at("fpgaLatency").number(0) : unsupported_ms;
  node.backward = flag(view.at("isBackwardNode"));
  if (const auto color = view.find("colorClass")) node.color = color->integer();
  if (const auto size = view.find("size")) node.bytes = size->number(0);
  return node;
}

// Sums are integers of 64 bits from here on.
void check_sums(const Graph& graph, const JsonView& view) {
  double ms = 0, bytes = graph.memory_bytes;
  for (const Node& node : graph.nodes) {
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

Graph read(const Json& json, const std::string& file) {
  const JsonView view(json, file);
  Graph graph;
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

// Which class each node belongs to: its colour, then everything that lies on a cycle of the forward parts of the classes. A class without
// latency lies with its neighbour if it has only one: no split is better with the two apart, and every such leaf doubles the cuts of what is beside
// it. With a size that holds where memory binds nobody.
class Classes {
 public:
  Classes(const Graph& graph, bool merge_leaves) : of_(graph.nodes.size()) {
    std::map<std::int64_t, int> by_color;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.color < 0) of_[i] = count_++;
      else if (const auto [at, fresh] = by_color.emplace(node.color, count_); fresh) of_[i] = count_++;
      else of_[i] = at->second;
    }
    order(graph, merge_leaves);
  }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int of(int node) const { return of_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] const std::set<std::pair<int, int>>& edges() const { return edges_; }

 private:
  // Forward edges order classes; classes without a forward node are ordered by their backward edges, turned round.
  std::set<std::pair<int, int>> precedence(const Graph& graph) const {
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
  std::set<std::pair<int, int>> free_leaves(const Graph& graph) const {
    std::vector<char> costs(static_cast<std::size_t>(count_), 0);
    std::vector<std::set<int>> neighbours(static_cast<std::size_t>(count_));
    double bytes = 0;
    for (const Node& node : graph.nodes) bytes += node.bytes;
    const bool memory_may_bind = bytes > graph.memory_bytes;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.cpu_ms > 0 || node.accelerator_ms > 0 || (node.bytes > 0 && memory_may_bind)) costs[static_cast<std::size_t>(of_[i])] = 1;
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
      pairs.emplace(c, other);
      pairs.emplace(other, c);
    }
    return pairs;
  }

  void merge(const std::set<std::pair<int, int>>& edges) {
    const std::vector<int> merged = strong_components(count_, edges);
    for (int& c : of_) c = merged[static_cast<std::size_t>(c)];
    count_ = 1 + *std::max_element(merged.begin(), merged.end());
  }

  // Classes on a cycle become one; then they are numbered topologically.
  void order(const Graph& graph, bool merge_leaves) {
    merge(precedence(graph));
    for (int before = count_ + 1; merge_leaves && count_ > 1 && count_ < before;) {
      before = count_;
      std::set<std::pair<int, int>> edges = precedence(graph);
      edges.merge(free_leaves(graph));
      merge(edges);
    }
    edges_ = precedence(graph);
  }

  std::vector<int> of_;
  int count_ = 0;
  std::set<std::pair<int, int>> edges_;
};

WorkGraph work_graph_of(const Graph& graph, const Classes& classes) {
  WorkGraph result;
  const auto n = static_cast<std::size_t>(classes.count());
  result.layers.resize(n);
  result.work.resize(n);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto c = static_cast<std::size_t>(classes.of(static_cast<int>(i)));
    result.layers[c].push_back(static_cast<int>(i));
    Work work;
    (graph.nodes[i].backward ? work.backward_ps : work.forward_ps) = std::llround(graph.nodes[i].accelerator_ms * kUnitsPerMs);
    work.parameter_bytes = std::llround(graph.nodes[i].bytes);
    result.work[c] += work;
  }
  std::vector<std::set<int>> readers(graph.nodes.size());
  for (const auto& [u, v] : graph.edges)
    if (classes.of(u) != classes.of(v)) readers[static_cast<std::size_t>(u)].insert(classes.of(v));
  for (std::size_t i = 0; i < graph.nodes.size(); ++i)
    if (!readers[i].empty() && graph.transfer_ms[i] > 0)
      result.flows.push_back(
          {classes.of(static_cast<int>(i)), {readers[i].begin(), readers[i].end()}, std::llround(graph.transfer_ms[i] * kUnitsPerMs)});
  result.targets.resize(n);
  result.sources.resize(n);
  for (const auto& [a, b] : classes.edges()) {
    result.targets[static_cast<std::size_t>(a)].push_back(b);
    result.sources[static_cast<std::size_t>(b)].push_back(a);
  }
  return result;
}

std::vector<Work> cpu_work(const Graph& graph, const WorkGraph& work) {
  std::vector<Work> result(work.work.size());
  for (std::size_t c = 0; c < result.size(); ++c) {
    for (const int node : work.layers[c]) {
      const Node& n = graph.nodes[static_cast<std::size_t>(node)];
      (n.backward ? result[c].backward_ps : result[c].forward_ps) += std::llround(n.cpu_ms * kUnitsPerMs);
    }
    result[c].parameter_bytes = work.work[c].parameter_bytes;
  }
  return result;
}

// A layer per class; what its forward nodes send is what it outputs. Gradients go back over the same edges, so backward nodes only name edges where a
// class has nothing else.
Profile profile_of(const Graph& graph) {
  const Classes classes(graph, false);
  Profile profile;
  profile.layers.resize(static_cast<std::size_t>(classes.count()));
  std::vector<char> named(profile.layers.size(), 0), forward(profile.layers.size(), 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const auto c = static_cast<std::size_t>(classes.of(static_cast<int>(i)));
    LayerProfile& layer = profile.layers[c];
    if (named[c] == 0 || (!node.backward && forward[c] == 0)) layer.name = std::to_string(node.id);
    named[c] = 1;
    if (!node.backward) forward[c] = 1;
    (node.backward ? layer.backward_ms : layer.forward_ms) += node.accelerator_ms;
    layer.parameter_bytes += std::llround(node.bytes);
  }
  std::map<int, int> output_of;        // of a producer
  std::set<std::pair<int, int>> read;  // by producer and class
  for (const auto& [u, v] : graph.edges) {
    int from = classes.of(u), to = classes.of(v);
    const Node &source = graph.nodes[static_cast<std::size_t>(u)], &target = graph.nodes[static_cast<std::size_t>(v)];
    if (from == to || source.backward != target.backward) continue;
    if (source.backward) {
      if (forward[static_cast<std::size_t>(from)] != 0 && forward[static_cast<std::size_t>(to)] != 0) continue;
      std::swap(from, to);
    }
    if (!read.emplace(source.backward ? v : u, to).second) continue;
    auto& outputs = profile.layers[static_cast<std::size_t>(from)].output_bytes;
    const auto [at, fresh] = output_of.emplace(source.backward ? v : u, static_cast<int>(outputs.size()));
    if (fresh) outputs.push_back(std::llround(graph.output_bytes[static_cast<std::size_t>(u)]));
    profile.edges.push_back({from, to, at->second});
  }
  return profile;
}

// Accelerators have the first ranks, CPUs the last; the name of a stage says where it lies on a CPU.
Plan plan_of(const Graph& graph, const WorkGraph& work, const CutFamily& cuts, const DnnSplit& split) {
  Plan plan;
  plan.schedule = "model-parallel";
  plan.policy = "flush";
  plan.optimizer = "none";
  plan.cost_model = "dnn-partitioning";
  int next_accelerator = 0, next_cpu = 0;
  for (const DnnStage& stage : split.stages) next_cpu += stage.on_cpu ? 0 : 1;
  for (std::size_t s = 0; s < split.stages.size(); ++s) {
    const DnnStage& found = split.stages[s];
    std::vector<Work> sums(2);
    const StageSum sum = cuts.stage(found.low, found.high, sums.data());
    const Work& own = sums[found.on_cpu ? 1 : 0];
    StagePlan stage;
    stage.name = std::to_string(s) + (found.on_cpu ? " cpu" : "");
    for (const int node : cuts.nodes(found.low, found.high))
      for (const int layer : work.layers[static_cast<std::size_t>(node)])
        stage.layers.push_back(std::to_string(graph.nodes[static_cast<std::size_t>(layer)].id));
    stage.ranks = {found.on_cpu ? next_cpu++ : next_accelerator++};
    StagePrediction& p = stage.predicted;
    p.forward_ms = static_cast<double>(own.forward_ps) / kUnitsPerMs;
    p.backward_ms = static_cast<double>(own.backward_ps) / kUnitsPerMs;
    p.transfer_ms = found.on_cpu ? 0 : static_cast<double>(sum.in_bytes + sum.out_bytes) / kUnitsPerMs;
    p.load_ms = p.forward_ms + p.backward_ms + p.transfer_ms;
    p.memory_bytes = own.parameter_bytes;
    plan.stages.push_back(std::move(stage));
  }
  plan.predicted.period_ms = static_cast<double>(split.largest_load_ps) / kUnitsPerMs;
  return plan;
}

// No split is faster: all devices at work all the time, each at what it is best at.
double least_ms(const Graph& graph, const std::vector<Work>& accelerator, const std::vector<Work>& cpu) {
  double sum = 0;
  for (std::size_t c = 0; c < accelerator.size(); ++c)
    sum += static_cast<double>(
        std::min(graph.accelerators > 0 ? accelerator[c].compute_ps() : INT64_MAX, graph.cpus > 0 ? cpu[c].compute_ps() : INT64_MAX));
  return sum / kUnitsPerMs / (graph.accelerators + graph.cpus);
}

}  // namespace

bool looks_like_dnn_partitioning(const std::string& text) {
  return text.find("\"maxFPGAs\"") != std::string::npos && text.find("\"fpgaLatency\"") != std::string::npos;
}

DnnPartitioningGraph read_dnn_partitioning(const std::string& text, const std::string& file) {
  const Graph graph = read(parse_json(text, file), file);
  return {profile_of(graph), graph.accelerators, graph.cpus, static_cast<std::int64_t>(graph.memory_bytes)};
}

Plan plan_dnn_partitioning(const std::string& text, const std::string& file, const DnnPartitioningOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Graph graph = read(parse_json(text, file), file);
  if (options.accelerators >= 0) graph.accelerators = options.accelerators;
  if (options.cpus >= 0) graph.cpus = options.cpus;
  if (options.memory_bytes >= 0) graph.memory_bytes = static_cast<double>(options.memory_bytes);
  if (graph.accelerators + graph.cpus == 0) throw InfeasibleError("no accelerator and no CPU may be used", "allow at least one device");
  const Classes classes(graph, true);
  const WorkGraph work = work_graph_of(graph, classes);
  const std::vector<std::vector<Work>> measurements{work.work, cpu_work(graph, work)};
  // A device more than there are classes is never of use.
  const DnnDevices devices{std::min(graph.accelerators, work.size()), std::min(graph.cpus, work.size()),
                           static_cast<std::int64_t>(graph.memory_bytes)};
  // The cuts of one order give a split that is near the best; all cuts then show that it is, or what is better.
  std::int64_t states = 0;
  std::vector<int> order(static_cast<std::size_t>(work.size()));
  std::iota(order.begin(), order.end(), 0);
  const CutFamily prefixes = CutFamily::prefixes(work, measurements, order);
  const auto linear = search_dnn_partitioning(prefixes, devices, INT64_MAX / 2, states);
  const auto labels = (devices.accelerators + 1.0) * (devices.cpus + 1.0);
  auto cuts = CutFamily::all(work, measurements, kMostCuts);
  if (cuts && cuts->size() * labels > kMostEntries) cuts.reset();
  const auto better = cuts ? search_dnn_partitioning(*cuts, devices, linear ? linear->largest_load_ps : INT64_MAX / 2, states) : std::nullopt;
  if (!linear && !better)
    throw InfeasibleError(
        fmt::format("no split fits {} accelerators of {} and {} CPUs", graph.accelerators, format_bytes(graph.memory_bytes), graph.cpus),
        "allow more --devices or --memory");
  Plan plan = better ? plan_of(graph, work, *cuts, *better) : plan_of(graph, work, prefixes, *linear);
  plan.predicted.certified = cuts.has_value();
  plan.predicted.bound_ms = cuts ? plan.predicted.period_ms : least_ms(graph, measurements[0], measurements[1]);
  plan.search = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), states};
  return plan;
}

}  // namespace pipedream
