#include "pipedream/plan/dnn_partitioning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/dnn_partitioning_graph.hpp"
#include "pipedream/plan/dnn_partitioning_search.hpp"
#include "pipedream/plan/orders.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kMostCuts = 500'000;
constexpr double kMostEntries = 5e7;  // cuts times counts of devices

// A layer per class; what its forward nodes send is what it outputs. Gradients go back over the same edges, so backward nodes only name edges where a
// class has nothing else.
Profile profile_of(const DnnGraph& graph) {
  const DnnClasses classes(graph, DnnLeaves::Apart);
  Profile profile;
  profile.layers.resize(static_cast<std::size_t>(classes.count()));
  std::vector<char> named(profile.layers.size(), 0), forward(profile.layers.size(), 0);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const DnnNode& node = graph.nodes[i];
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
    const DnnNode &source = graph.nodes[static_cast<std::size_t>(u)], &target = graph.nodes[static_cast<std::size_t>(v)];
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
Plan plan_of(const DnnGraph& graph, const WorkGraph& work, const CutFamily& cuts, const DnnSplit& split) {
  Plan plan;
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
    p.forward_ms = static_cast<double>(own.forward_ps) / kDnnUnitsPerMs;
    p.backward_ms = static_cast<double>(own.backward_ps) / kDnnUnitsPerMs;
    p.transfer_ms = found.on_cpu ? 0 : static_cast<double>(sum.in_bytes + sum.out_bytes) / kDnnUnitsPerMs;
    p.load_ms = p.forward_ms + p.backward_ms + p.transfer_ms;
    p.memory_bytes = own.parameter_bytes;
    plan.stages.push_back(std::move(stage));
  }
  plan.predicted.period_ms = static_cast<double>(split.largest_load_ps) / kDnnUnitsPerMs;
  return plan;
}

// No split is faster: all devices at work all the time, each at what it is best at.
double least_ms(const DnnGraph& graph, const std::vector<Work>& accelerator, const std::vector<Work>& cpu) {
  double sum = 0;
  for (std::size_t c = 0; c < accelerator.size(); ++c)
    sum += static_cast<double>(
        std::min(graph.accelerators > 0 ? accelerator[c].compute_ps() : INT64_MAX, graph.cpus > 0 ? cpu[c].compute_ps() : INT64_MAX));
  return sum / kDnnUnitsPerMs / (graph.accelerators + graph.cpus);
}

// The best split with leaves treated so; certified where all cuts were looked at. Nothing: there is none, or none over one order of too many classes.
std::optional<Plan> solve(const DnnGraph& graph, DnnLeaves leaves, std::int64_t& states) {
  const DnnClasses classes(graph, leaves);
  const WorkGraph work = work_graph_of(graph, classes);
  const std::vector<std::vector<Work>> measurements{work.work, cpu_work(graph, work)};
  // A device more than there are classes is never of use.
  const DnnDevices devices{std::min(graph.accelerators, work.size()), std::min(graph.cpus, work.size()),
                           static_cast<std::int64_t>(graph.memory_bytes)};
  // The cuts of one order give a split that is near the best; all cuts then show that it is, or what is better.
  const CutFamily prefixes = CutFamily::prefixes(work, measurements, file_order(work));
  const auto linear = search_dnn_partitioning(prefixes, devices, INT64_MAX / 2, states);
  const auto labels = (devices.accelerators + 1.0) * (devices.cpus + 1.0);
  auto cuts = CutFamily::all(work, measurements, kMostCuts);
  if (cuts && cuts->size() * labels > kMostEntries) cuts.reset();
  const auto better = cuts ? search_dnn_partitioning(*cuts, devices, linear ? linear->largest_load_ps : INT64_MAX / 2, states) : std::nullopt;
  if (!linear && !better) return std::nullopt;
  Plan plan = better ? plan_of(graph, work, *cuts, *better) : plan_of(graph, work, prefixes, *linear);
  plan.predicted.certified = cuts.has_value();
  plan.predicted.bound_ms = cuts ? plan.predicted.period_ms : least_ms(graph, measurements[0], measurements[1]);
  return plan;
}

// Leaves that have a size may fit only apart from their neighbours. Without these sizes they may be merged, which gives a bound; merged with their
// sizes they give a split. Mostly the two agree; else all is searched with such leaves apart.
std::optional<Plan> solve_with_leaves(const DnnGraph& graph, std::int64_t& states) {
  std::optional<Plan> merged = solve(graph, DnnLeaves::Merged, states);
  const DnnClasses classes(graph, DnnLeaves::Merged);
  DnnGraph weightless = graph;
  double all = 0, of_leaves = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    all += graph.nodes[i].bytes;
    if (!classes.is_leaf(static_cast<int>(i))) continue;
    of_leaves += graph.nodes[i].bytes;
    weightless.nodes[i].bytes = 0;
  }
  if (of_leaves == 0 || all <= graph.memory_bytes) return merged;
  const std::optional<Plan> bound = solve(weightless, DnnLeaves::Merged, states);
  const double least = bound && bound->predicted.certified ? bound->predicted.period_ms : 0;
  if (merged && merged->predicted.certified && merged->predicted.period_ms == least) return merged;
  std::optional<Plan> apart = solve(graph, DnnLeaves::MergedIfWeightless, states);
  if (apart && apart->predicted.certified) return apart;
  std::optional<Plan>& best = !apart || (merged && merged->predicted.period_ms < apart->predicted.period_ms) ? merged : apart;
  if (best) {
    best->predicted.certified = false;
    best->predicted.bound_ms = least;
  }
  return best;
}

}  // namespace

bool looks_like_dnn_partitioning(const std::string& text) {
  return text.find("\"maxFPGAs\"") != std::string::npos && text.find("\"fpgaLatency\"") != std::string::npos;
}

DnnPartitioningGraph read_dnn_partitioning(const std::string& text, const std::string& file) {
  const DnnGraph graph = read_dnn_graph(text, file);
  return {profile_of(graph), graph.accelerators, graph.cpus, static_cast<std::int64_t>(graph.memory_bytes)};
}

Plan plan_dnn_partitioning(const std::string& text, const std::string& file, const DnnPartitioningOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  DnnGraph graph = read_dnn_graph(text, file);
  if (options.accelerators >= 0) graph.accelerators = options.accelerators;
  if (options.cpus >= 0) graph.cpus = options.cpus;
  if (options.memory_bytes >= 0) graph.memory_bytes = static_cast<double>(options.memory_bytes);
  if (graph.accelerators + graph.cpus == 0) throw InfeasibleError("no accelerator and no CPU may be used", "allow at least one device");
  std::int64_t states = 0;
  std::optional<Plan> plan = solve_with_leaves(graph, states);
  if (!plan)
    throw InfeasibleError(
        fmt::format("no split fits {} accelerators of {} and {} CPUs", graph.accelerators, format_bytes(graph.memory_bytes), graph.cpus),
        "allow more --devices or --memory");
  plan->search = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), states};
  return *plan;
}

}  // namespace pipedream
