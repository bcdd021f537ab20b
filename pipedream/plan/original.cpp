#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/original_search.hpp"
#include "pipedream/plan/problem.hpp"

// The planner `pipedream`: the original's search, and its answer as a plan of ours.
namespace pipedream {
namespace {

constexpr int kMostStates = 5000;

OriginalOptions options_of(const PlanProblem& problem) {
  OriginalOptions options;
  if (!problem.cluster->links.empty())
    throw UsageError("the original's cost models know levels only, not a matrix of links",
                     "describe the network by levels, or use --cost-model ring");
  if (problem.kinds.kinds.size() > 1) throw UsageError("the original's cost models know equal devices only", "use --cost-model ring");
  for (const Level& level : problem.cluster->levels) options.levels.push_back({level.size, level.bandwidth});
  if (options.levels.empty()) options.levels.push_back({1, 1e9});
  options.compression = problem.options.compression;
  options.printed_formula = problem.options.cost_model == "paper";
  options.straight = problem.options.straight;
  options.fewer_machines = problem.options.fewer_devices;
  options.memory_bytes = static_cast<double>(problem.cluster->devices.front().memory_bytes);
  return options;
}

struct States {
  std::optional<OriginalStates> states;
  std::vector<std::vector<int>> members;  // layers of the profile per layer of the states
};

States states_of(const PlanProblem& problem) {
  States result;
  if (problem.options.compress_branches) {
    result.states = original_states(compress_branches(*problem.profile, &result.members), kMostStates);
  } else {
    for (int layer = 0; layer < problem.profile->num_layers(); ++layer) result.members.push_back({layer});
    result.states = original_states(*problem.profile, kMostStates);
  }
  return result;
}

// Layers of each stage. What the original takes away before it plans goes where it is needed: inputs to the first stage, sinks to their source's.
std::vector<std::vector<int>> layers_of(const PlanProblem& problem, const States& states, const OriginalPlan& plan) {
  std::vector<int> stage_of(problem.profile->layers.size(), -1);
  const OriginalStates& s = *states.states;
  for (std::size_t i = 0; i < plan.stages.size(); ++i)
    for (const int merged : s.layers[static_cast<std::size_t>(plan.stages[i].last)])
      for (const int layer : states.members[static_cast<std::size_t>(merged)])
        if (stage_of[static_cast<std::size_t>(layer)] < 0) stage_of[static_cast<std::size_t>(layer)] = static_cast<int>(i);
  std::vector<std::vector<int>> layers(plan.stages.size());
  for (const int layer : topological_order(*problem.profile)) {
    int& stage = stage_of[static_cast<std::size_t>(layer)];
    if (stage < 0) {
      stage = 0;
      for (const ProfileEdge& edge : problem.profile->edges)
        if (edge.target == layer) stage = std::max(stage, stage_of[static_cast<std::size_t>(edge.source)]);
    }
    layers[static_cast<std::size_t>(stage)].push_back(layer);
  }
  return layers;
}

// Ranks count from 0 without gaps, also where the search left machines idle.
void close_gaps(std::vector<std::vector<int>>& devices) {
  std::set<int> used;
  for (const auto& stage : devices) used.insert(stage.begin(), stage.end());
  for (auto& stage : devices)
    for (int& device : stage) device = static_cast<int>(std::distance(used.begin(), used.find(device)));
}

}  // namespace

Answer plan_original(const PlanProblem& problem) {
  const OriginalOptions options = options_of(problem);
  const States states = states_of(problem);
  if (!states.states)
    throw InfeasibleError("the original's optimizer would look at more than 5,000 states of this graph",
                          "merge the branches with --compress-branches, or use --cost-model ring");
  const auto found = search_original(*states.states, options);
  if (!found) return {};
  Plan plan = empty_plan(problem);
  std::vector<std::vector<int>> devices;
  for (const OriginalStage& stage : found->stages) devices.push_back(stage.devices);
  close_gaps(devices);
  const auto layers = layers_of(problem, states, *found);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    StagePlan stage;
    stage.name = std::to_string(i);
    for (const int layer : layers[i]) stage.layers.push_back(problem.profile->layers[static_cast<std::size_t>(layer)].name);
    stage.ranks = devices[i];
    plan.stages.push_back(std::move(stage));
  }
  predict(problem, plan);
  const double own_period = plan.predicted.period_ms;
  for (std::size_t i = 0; i < layers.size() && options.levels.size() == 1; ++i)
    plan.stages[i].predicted.load_ms = found->stages[i].stage_time_s * 1000;
  const bool own_model = problem.options.cost_model == "paper" || problem.options.cost_model == "released";
  plan.predicted.period_ms = own_model ? found->time_s * 1000 : own_period;
  return {std::move(plan), own_model ? found->time_s * 1000 : 0, own_model, found->cells};
}

std::vector<Alternative> list_original_alternatives(const PlanProblem& problem, const Plan& plan) {
  const OriginalOptions options = options_of(problem);
  const OriginalStates states = *states_of(problem).states;
  const auto described = [&](const std::string& name, double seconds, const std::string& shape) {
    Alternative a;
    a.name = name;
    a.period_ms = seconds * 1000;
    a.shape = shape;
    compare(a, plan);
    return a;
  };
  std::vector<Alternative> result{described("single", states.compute_s.back(), "1")};
  const int devices = problem.cluster->num_devices();
  if (devices == 1) return result;
  if (!options.printed_formula) result.push_back(described("data-parallel", original_data_parallel_s(states, options), std::to_string(devices)));
  OriginalOptions straight = options;
  straight.straight = true;
  straight.fewer_machines = true;
  if (const auto found = search_original(states, straight)) result.push_back(described("straight", found->time_s, "all stages on one device each"));
  return result;
}

}  // namespace pipedream
