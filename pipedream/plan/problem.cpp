#include "pipedream/plan/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

void check_share(double value, const char* what) {
  if (!(value >= 0 && value <= 1))
    throw UsageError(fmt::format("the {} overlap is {}, it must lie between 0 and 1", what, value), "0: added to compute, 1: hidden behind it");
}

constexpr int kMostMicroBatches = 100'000'000;  // counts of micro-batches and ranks add up to less than an int holds

void check_options(const PlanOptions& options) {
  const auto models = list_cost_models();
  if (std::none_of(models.begin(), models.end(), [&](const auto& model) { return model.first == options.cost_model; })) {
    std::string names;
    for (const auto& [name, text] : models) names += (names.empty() ? "" : ", ") + name;
    throw UsageError(fmt::format("unknown cost model '{}'", options.cost_model), "choose one of: " + names);
  }
  if (options.cost_model == "dnn-partitioning" || options.cost_model == "piper")
    throw UsageError(fmt::format("this is no graph of the project that the cost model '{}' is of", options.cost_model),
                     "give a file of that project, or use --cost-model ring");
  if (options.micro_batches < 1) throw UsageError(fmt::format("{} micro-batches per mini-batch: at least 1 is needed", options.micro_batches));
  if (options.extra_in_flight < 0) throw UsageError(fmt::format("{} extra micro-batches in flight: 0 or more", options.extra_in_flight));
  if (options.micro_batches > kMostMicroBatches)
    throw UsageError(fmt::format("{} micro-batches per mini-batch: at most {} are planned with", options.micro_batches, kMostMicroBatches));
  if (options.extra_in_flight > kMostMicroBatches)
    throw UsageError(fmt::format("{} extra micro-batches in flight: at most {} are planned with", options.extra_in_flight, kMostMicroBatches));
  if (options.max_stages < 0) throw UsageError(fmt::format("at most {} stages: 1 or more, or 0 for no limit", options.max_stages));
  if (options.compression && !(*options.compression > 0))
    throw UsageError(fmt::format("the compression ratio is {}, it must be above 0", *options.compression));
  const bool original = options.cost_model == "released" || options.cost_model == "paper" || options.planner == "pipedream";
  if (!original && (options.compression || options.compress_branches))
    throw UsageError(fmt::format("{} has a meaning in the cost models released and paper, and for the planner pipedream, only",
                                 options.compression ? "--activation-compression" : "--compress-branches"),
                     "add --cost-model released, or leave it out");
  check_share(options.transfer_overlap, "transfer");
  check_share(options.reduce_overlap, "reduction");
}

// Work per node of another measurement of the same layers.
std::vector<Work> work_by_name(const PlanProblem& problem, const Profile& other, const std::string& place, bool join_ties) {
  const WorkGraph own = make_work_graph(other, join_ties);
  std::unordered_map<std::string, Work> by_layer;
  for (int node = 0; node < own.size(); ++node)
    for (const int layer : own.layers[static_cast<std::size_t>(node)]) {
      Profile single;
      single.layers = {other.layers[static_cast<std::size_t>(layer)]};
      by_layer.emplace(single.layers.front().name, make_work_graph(single, false).total());
    }
  std::vector<Work> work;
  for (int node = 0; node < problem.graph.size(); ++node) {
    Work sum;
    for (const int layer : problem.graph.layers[static_cast<std::size_t>(node)]) {
      const std::string& name = problem.profile->layers[static_cast<std::size_t>(layer)].name;
      const auto at = by_layer.find(name);
      if (at == by_layer.end()) throw InputError(place, fmt::format("layer '{}' is missing", name), "measure the same model on every type of device");
      sum += at->second;
    }
    const Work& common = problem.graph.work[static_cast<std::size_t>(node)];  // sizes are those of the model, times those of the device
    sum.parameter_bytes = common.parameter_bytes;
    sum.stashed_bytes = common.stashed_bytes;
    work.push_back(sum);
  }
  return work;
}

std::vector<int> load_measurements(PlanProblem& problem, bool join_ties) {
  problem.work = {problem.graph.work};
  std::map<std::string, int> known{{"", 0}};
  std::vector<int> times;
  for (const Device& device : problem.cluster->devices) {
    auto at = known.find(device.profile);
    if (at == known.end()) {
      at = known.emplace(device.profile, static_cast<int>(problem.work.size())).first;
      problem.work.push_back(work_by_name(problem, load_profile(device.profile), device.profile, join_ties));
    }
    times.push_back(at->second);
  }
  return times;
}

CostForm form_of(const std::string& schedule) {
  if (schedule == "model-parallel") return CostForm::Sequential;
  return flushes(schedule) ? CostForm::Flush : CostForm::Steady;
}

}  // namespace

void set_rates(const std::vector<std::vector<Work>>& work, std::vector<DeviceKind>& kinds) {
  // The layer that a device is best at decides.
  for (DeviceKind& kind : kinds) {
    double best = kind.times == 0 ? 1 : 0;
    for (std::size_t node = 0; node < work.front().size() && kind.times != 0; ++node) {
      const double reference = static_cast<double>(work.front()[node].forward_ps),
                   reference_back = static_cast<double>(work.front()[node].backward_ps);
      const Work& own = work[static_cast<std::size_t>(kind.times)][node];
      if (reference > 0) best = std::max(best, reference / static_cast<double>(own.forward_ps));
      if (reference_back > 0) best = std::max(best, reference_back / static_cast<double>(own.backward_ps));
    }
    kind.rate = kind.speed * best;
  }
}

PlanProblem make_problem(const Profile& profile, const Cluster& cluster, const PlanOptions& options) {
  check_options(options);
  validate(cluster, "cluster");
  PlanProblem problem;
  problem.profile = &profile;
  problem.cluster = &cluster;
  problem.options = options;
  if (problem.options.policy.empty()) problem.options.policy = default_policy(options.schedule);
  const bool join_ties = !flushes(options.schedule);
  problem.graph = make_work_graph(profile, join_ties);
  problem.kinds = device_kinds(cluster, load_measurements(problem, join_ties));
  set_rates(problem.work, problem.kinds.kinds);
  problem.cost.form = form_of(options.schedule);
  problem.cost.micro_batches = options.micro_batches;
  problem.cost.transfer_overlap = options.transfer_overlap;
  problem.cost.reduce_overlap = options.reduce_overlap;
  problem.cost.optimizer_state = optimizer_state_factor(options.optimizer);
  problem.cost.kinds = problem.kinds.kinds;
  problem.in_flight =
      options.in_flight ? options.in_flight : in_flight_model(options.schedule, options.policy, options.micro_batches, options.extra_in_flight);
  if (options.schedule == "data-parallel") problem.options.max_stages = 1;
  return problem;
}

SearchSpace make_space(const PlanProblem& problem, const CutFamily& cuts, const DeviceLayout& layout) {
  SearchSpace space;
  space.cuts = &cuts;
  space.layout = &layout;
  space.cost = &problem.cost;
  space.in_flight = &problem.in_flight;
  space.must_recompute = problem.options.recompute == Recompute::Always;
  space.may_recompute = problem.options.recompute != Recompute::Never;
  space.fewer_devices = problem.options.fewer_devices;
  space.max_stages = problem.options.max_stages;
  space.shape = problem.options.shape;
  space.exact_stages = static_cast<int>(space.shape.size());
  return space;
}

std::vector<DeviceLayout> layouts_of(const PlanProblem& problem) {
  return device_layouts(*problem.cluster, problem.kinds, problem.options.straight, problem.options.fewer_devices, problem.graph.size());
}

Plan empty_plan(const PlanProblem& problem) {
  Plan plan;
  plan.model = problem.profile->model;
  plan.schedule = problem.options.schedule;
  plan.policy = problem.options.policy;
  plan.cost_model = problem.options.cost_model;
  plan.optimizer = problem.options.optimizer;
  plan.micro_batch = problem.profile->micro_batch;
  plan.micro_batches = problem.options.micro_batches;
  plan.profile_fingerprint = fingerprint(*problem.profile);
  plan.cluster_fingerprint = fingerprint(*problem.cluster);
  return plan;
}

Plan plan_of(const PlanProblem& problem, const std::vector<std::vector<int>>& nodes, const std::vector<std::vector<int>>& devices,
             const std::vector<bool>& recompute) {
  Plan plan = empty_plan(problem);
  for (std::size_t s = 0; s < nodes.size(); ++s) {
    StagePlan stage;
    stage.name = std::to_string(s);
    std::vector<int> layers = s == 0 ? problem.graph.inputs : std::vector<int>{};
    for (const int node : nodes[s]) {
      const auto& own = problem.graph.layers[static_cast<std::size_t>(node)];
      layers.insert(layers.end(), own.begin(), own.end());
    }
    for (const int layer : layers) stage.layers.push_back(problem.profile->layers[static_cast<std::size_t>(layer)].name);
    stage.ranks = devices[s];
    stage.recompute = recompute[s];
    plan.stages.push_back(std::move(stage));
  }
  predict(problem, plan);
  return plan;
}

Plan plan_of(const PlanProblem& problem, const CutFamily& cuts, const DeviceLayout& layout, const Found& found) {
  std::vector<std::vector<int>> nodes;
  std::vector<std::pair<int, Take>> path;
  std::vector<bool> recompute;
  for (const FoundStage& stage : found.stages) {
    nodes.push_back(cuts.nodes(stage.low, stage.high));
    path.emplace_back(stage.label, stage.take);
    recompute.push_back(stage.recompute);
  }
  std::reverse(path.begin(), path.end());
  return plan_of(problem, nodes, layout.devices(path), recompute);
}

}  // namespace pipedream
