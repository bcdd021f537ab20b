#include "pipedream/plan/piper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/orders.hpp"
#include "pipedream/plan/piper_search.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kMostCuts = 200'000;
constexpr double kMostMemory = 1e18;

// Only what CutFamily needs: nodes and their order. Index of nodes is a topological order from here on.
WorkGraph skeleton(const PiperGraph& graph) {
  WorkGraph result;
  const std::size_t n = graph.nodes.size();
  result.layers.resize(n);
  result.work.resize(n);
  result.targets.resize(n);
  result.sources.resize(n);
  for (const PiperEdge& edge : graph.edges) {
    result.targets[static_cast<std::size_t>(edge.source)].push_back(edge.target);
    result.sources[static_cast<std::size_t>(edge.target)].push_back(edge.source);
  }
  return result;
}

std::int64_t load_of(const std::vector<PiperFoundStage>& stages) {
  std::int64_t load = 0;
  for (const PiperFoundStage& stage : stages) load = std::max(load, (stage.load_times_replicas + stage.replicas - 1) / stage.replicas);
  return load;
}

struct Smallest {
  std::optional<std::vector<PiperFoundStage>> found;
  std::int64_t infeasible = 0;  // thresholds up to this have no split
};

Smallest smallest_threshold(PiperSearch& search, std::int64_t most) {
  Smallest result;
  result.infeasible = search.floor() - 1;
  std::int64_t high = INT64_MAX;
  const auto try_at = [&](std::int64_t threshold) {
    auto found = search.find(threshold);
    if (!found) {
      result.infeasible = std::max(result.infeasible, threshold);
      return;
    }
    high = load_of(*found);
    result.found = std::move(found);
  };
  for (double step = 0.01; high == INT64_MAX && result.infeasible < most; step *= 2) {
    const double grown = std::ceil(static_cast<double>(std::max<std::int64_t>(result.infeasible, 1)) * (1 + step));
    try_at(grown < static_cast<double>(most) ? static_cast<std::int64_t>(grown) : most);
  }
  while (result.found && result.infeasible < high - 1) {
    const std::int64_t low = result.infeasible, gap = high - low;
    // Halve while the interval is wide; near the end ask for the certificate itself.
    try_at(gap > high / 1000 ? low + gap / 2 : high - 1);
  }
  return result;
}

PiperPlan plan_of(const PiperGraph& graph, const std::vector<PiperFoundStage>& found) {
  PiperPlan plan;
  for (const PiperFoundStage& own : found) {
    PiperStage stage;
    for (std::size_t i = 0; i < own.nodes.size(); ++i) {
      const PiperNode& node = graph.nodes[static_cast<std::size_t>(own.nodes[i])];
      stage.layers.push_back(node.name);
      stage.variants.push_back(node.degrees.at(own.degree).variants[static_cast<std::size_t>(own.variants[i])].name);
    }
    stage.tensor_degree = own.degree;
    stage.replicas = own.replicas;
    plan.stages.push_back(std::move(stage));
  }
  return plan;
}

[[noreturn]] void fail_no_split(const PiperGraph& graph, const PiperOptions& options, const CutFamily& cuts) {
  const auto split_within = [&](double memory) {
    PiperGraph other = graph;
    other.memory_bytes = memory;
    const PiperWork work = make_piper_work(other, options);
    return PiperSearch(work, other, cuts).find(work.most_time);
  };
  double high = std::max(1.0, graph.memory_bytes), low = high;
  auto leanest = split_within(high);
  for (; !leanest && high < kMostMemory; leanest = split_within(high)) {
    low = high;
    high *= 2;
  }
  if (!leanest)
    throw InfeasibleError(fmt::format("no split of the {} layers uses at most {} devices", graph.nodes.size(), graph.devices),
                          "allow more devices; layers of one stage need a tensor degree in common");
  while (high - low > high / 1000) {
    const double middle = (low + high) / 2;
    auto split = split_within(middle);
    if (split) leanest = std::move(split);
    (split ? high : low) = middle;
  }
  PiperOptions free = options;
  free.memory_bytes = kMostMemory;
  const PiperPlan plan = evaluate_piper(graph, free, plan_of(graph, *leanest));
  const auto fullest =
      std::max_element(plan.stages.begin(), plan.stages.end(), [](const auto& a, const auto& b) { return a.memory_bytes < b.memory_bytes; });
  const std::string layers = fullest->layers.size() == 1 ? fmt::format("layer '{}'", fullest->layers.front())
                                                         : fmt::format("layers '{}' to '{}'", fullest->layers.front(), fullest->layers.back());
  throw InfeasibleError(
      fmt::format("no split over {} devices fits the memory: the leanest one needs {} for stage {} ({}), the devices have {}: {} are missing",
                  graph.devices, format_bytes(fullest->memory_bytes), fullest - plan.stages.begin(), layers, format_bytes(graph.memory_bytes),
                  format_bytes(fullest->memory_bytes - graph.memory_bytes)),
      "raise --memory, use more --devices or allow recomputation");
}

}  // namespace

PiperPlan plan_piper(const PiperGraph& given, const PiperOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const PiperGraph graph = with_options(given, options);
  const PiperWork work = make_piper_work(graph, options);
  const WorkGraph nodes = skeleton(graph);
  auto cuts = CutFamily::all(nodes, {nodes.work}, kMostCuts);
  const bool all = cuts.has_value();
  if (!all) cuts = CutFamily::prefixes(nodes, {nodes.work}, breadth_first_order(nodes));
  PiperSearch search(work, graph, *cuts);
  const Smallest smallest = smallest_threshold(search, work.most_time);
  if (!smallest.found) fail_no_split(graph, options, *cuts);
  PiperPlan plan = evaluate_piper(graph, options, plan_of(graph, *smallest.found));
  plan.certified = all || load_of(*smallest.found) <= search.floor();
  plan.bound = plan.certified ? plan.time : static_cast<double>(search.floor()) / work.scale;
  plan.search = {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), search.states()};
  return plan;
}

PiperPlan evaluate_piper(const PiperGraph& given, const PiperOptions& options, const PiperPlan& plan) {
  const PiperGraph graph = with_options(given, options);
  std::unordered_map<std::string, int> index;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v) index.emplace(graph.nodes[v].name, static_cast<int>(v));
  PiperPlan result;
  result.stages = plan.stages;
  result.devices = graph.devices;
  std::vector<int> stage_of(graph.nodes.size(), -1);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    for (const std::string& layer : plan.stages[s].layers) {
      const auto at = index.find(layer);
      if (at == index.end()) throw InputError(graph.file, fmt::format("the plan has a layer '{}', the graph has none", layer));
      if (stage_of[static_cast<std::size_t>(at->second)] >= 0) throw InputError(graph.file, fmt::format("the plan places layer '{}' twice", layer));
      stage_of[static_cast<std::size_t>(at->second)] = static_cast<int>(s);
    }
  for (std::size_t v = 0; v < stage_of.size(); ++v)
    if (stage_of[v] < 0) throw InputError(graph.file, fmt::format("the plan places layer '{}' nowhere", graph.nodes[v].name));
  for (const PiperEdge& edge : graph.edges)
    if (stage_of[static_cast<std::size_t>(edge.source)] > stage_of[static_cast<std::size_t>(edge.target)])
      throw InputError(graph.file, fmt::format("an edge goes from stage {} back to stage {}", stage_of[static_cast<std::size_t>(edge.source)],
                                               stage_of[static_cast<std::size_t>(edge.target)]));
  int later = 0;  // replicas of this and all later stages
  for (std::size_t s = plan.stages.size(); s-- > 0;) {
    PiperStage& stage = result.stages[s];
    const double d = stage.replicas;
    later += stage.replicas;
    stage.in_flight = (later + stage.replicas - 1) / stage.replicas;
    stage.time = stage.memory_bytes = 0;
    for (std::size_t i = 0; i < stage.layers.size(); ++i) {
      const PiperNode& node = graph.nodes[static_cast<std::size_t>(index.at(stage.layers[i]))];
      const auto degree = node.degrees.find(stage.tensor_degree);
      if (degree == node.degrees.end())
        throw InputError(graph.file, fmt::format("layer '{}' has no tensor degree {}", node.name, stage.tensor_degree));
      const auto& variants = degree->second.variants;
      const auto variant = std::find_if(variants.begin(), variants.end(), [&](const PiperVariant& v) { return v.name == stage.variants[i]; });
      if (variant == variants.end()) throw InputError(graph.file, fmt::format("layer '{}' has no variant '{}'", node.name, stage.variants[i]));
      double bytes = 0;
      for (std::size_t e = 0; e < node.in_edges.size(); ++e) {
        const PiperEdge& edge = graph.edges[static_cast<std::size_t>(node.in_edges[e])];
        if (stage_of[static_cast<std::size_t>(edge.source)] != static_cast<int>(s)) bytes += 2 * (edge.bytes + degree->second.sync_in_bytes[e]);
      }
      for (std::size_t e = 0; e < node.out_edges.size(); ++e) {
        const PiperEdge& edge = graph.edges[static_cast<std::size_t>(node.out_edges[e])];
        if (stage_of[static_cast<std::size_t>(edge.target)] != static_cast<int>(s)) bytes += 2 * (edge.bytes + degree->second.sync_out_bytes[e]);
      }
      const double reduced = 4 * (d - 1) * degree->second.parameter_bytes / d / graph.micro_batches;
      stage.time += variant->time / d + (bytes / d + reduced) / graph.bandwidth;
      stage.memory_bytes += variant->memory_a_bytes * stage.in_flight + variant->memory_b_bytes;
    }
    result.time = std::max(result.time, stage.time);
  }
  return result;
}

std::string piper_plan_to_json(const PiperPlan& plan) {
  Json json{{"schema", "pipedream.piper-plan/1"}, {"cost_model", "piper"}, {"devices", plan.devices}};
  json["stages"] = Json::array();
  int rank = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PiperStage& stage = plan.stages[s];
    Json ranks = Json::array();
    for (int i = 0; i < stage.devices(); ++i) ranks.push_back(rank++);
    Json recomputed = Json::object();
    for (std::size_t i = 0; i < stage.layers.size(); ++i) recomputed[stage.layers[i]] = stage.variants[i];
    json["stages"].push_back({{"name", std::to_string(s)},
                              {"layers", stage.layers},
                              {"tensor_degree", stage.tensor_degree},
                              {"replicas", stage.replicas},
                              {"ranks", ranks},
                              {"variants", recomputed},
                              {"predicted", {{"time", stage.time}, {"memory_bytes", stage.memory_bytes}, {"in_flight", stage.in_flight}}}});
  }
  json["predicted"] = {{"time_per_sample", plan.time}, {"bound", plan.bound}, {"certified", plan.certified}};
  json["search"] = {{"seconds", plan.search.seconds}, {"states", plan.search.states}};
  return json.dump(1) + "\n";
}

}  // namespace pipedream
