#include "pipedream/plan/dnn_partitioning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

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
    graph.edges.emplace_back(source, target);
  }
  return graph;
}

// Which class each node belongs to: its colour, then everything that lies on a cycle of the forward parts of the classes.
class Classes {
 public:
  explicit Classes(const Graph& graph) : of_(graph.nodes.size()) {
    std::map<std::int64_t, int> by_color;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      if (node.color < 0) of_[i] = count_++;
      else if (const auto [at, fresh] = by_color.emplace(node.color, count_); fresh) of_[i] = count_++;
      else of_[i] = at->second;
    }
    order(graph);
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

  // Classes on a cycle become one; then they are numbered topologically.
  void order(const Graph& graph) {
    std::set<std::pair<int, int>> edges = precedence(graph);
    std::vector<int> merged = strong_components(count_, edges);
    for (int& c : of_) c = merged[static_cast<std::size_t>(c)];
    count_ = 1 + *std::max_element(merged.begin(), merged.end());
    for (const auto& [a, b] : edges)
      if (merged[static_cast<std::size_t>(a)] != merged[static_cast<std::size_t>(b)])
        edges_.emplace(merged[static_cast<std::size_t>(a)], merged[static_cast<std::size_t>(b)]);
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

Profile profile_of(const Graph& graph) {
  Profile profile;
  for (const Node& node : graph.nodes) {
    LayerProfile layer;
    layer.name = std::to_string(node.id);
    (node.backward ? layer.backward_ms : layer.forward_ms) = node.accelerator_ms;
    layer.parameter_bytes = std::llround(node.bytes);
    layer.output_bytes = {0};
    profile.layers.push_back(layer);
  }
  for (const auto& [u, v] : graph.edges) profile.edges.push_back({u, v, 0});
  return profile;
}

Cluster cluster_of(int accelerators, int cpus, double memory_bytes) {
  Cluster cluster;
  Device device;
  device.type = "accelerator";
  device.memory_bytes = static_cast<std::int64_t>(memory_bytes);
  cluster.devices.assign(static_cast<std::size_t>(accelerators), device);
  device = {"cpu", 0, 1, ""};
  cluster.devices.insert(cluster.devices.end(), static_cast<std::size_t>(cpus), device);
  cluster.levels = {{accelerators + cpus, 1000 * kUnitsPerMs, 0, false}};  // a unit of transfer cost takes a unit of time
  return cluster;
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
  const Cluster cluster = cluster_of(graph.accelerators, graph.cpus, graph.memory_bytes);
  if (cluster.devices.empty()) throw InfeasibleError("no accelerator and no CPU may be used", "allow at least one device");
  const Classes classes(graph);
  const Profile profile = profile_of(graph);
  PlanProblem problem;
  problem.profile = &profile;
  problem.cluster = &cluster;
  problem.options.cost_model = "dnn-partitioning";
  problem.options.fewer_devices = true;
  problem.options.recompute = Recompute::Never;
  problem.graph = work_graph_of(graph, classes);
  problem.work = {problem.graph.work, cpu_work(graph, problem.graph)};
  std::vector<int> times(cluster.devices.size(), 0);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] = cluster.devices[i].type == "cpu" ? 1 : 0;
  problem.kinds = device_kinds(cluster, times);
  set_rates(problem.work, problem.kinds.kinds);
  problem.cost.transfer_overlap = 0;
  problem.cost.optimizer_state = problem.cost.gradient_bytes = 0;
  problem.cost.count_transfers = false;
  problem.cost.kinds = problem.kinds.kinds;
  problem.in_flight = [](const StagePosition&) { return InFlight{1, 1}; };
  DeviceLayout layout = single_device_layout(cluster, problem.kinds);
  for (StageSetting& setting : layout.settings)
    if (problem.kinds.kinds[static_cast<std::size_t>(setting.kinds.front())].times == 1) setting.in_ms_per_byte = setting.out_ms_per_byte = 0;

  const auto cuts = CutFamily::all(problem.graph, problem.work, 2'000'000);
  if (!cuts) throw InfeasibleError("the graph has more than two million places to cut", "use a coarser graph");
  SearchBudget budget;
  SearchSpace space = make_space(problem, *cuts, layout);
  space.any_plan = true;
  const Optimum optimum = optimise(space, std::numeric_limits<double>::infinity(), budget);
  if (!optimum.found)
    throw InfeasibleError(fmt::format("no split fits {} accelerators of {} bytes and {} CPUs", graph.accelerators, graph.memory_bytes, graph.cpus),
                          "allow more devices");
  return foreign_plan(problem, *cuts, layout, optimum, budget, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace pipedream
