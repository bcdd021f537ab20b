#include <algorithm>
#include <set>

#include "pipedream/plan/problem.hpp"

namespace pipedream {

Plan foreign_plan(const PlanProblem& problem, const CutFamily& cuts, const DeviceLayout& layout, const Optimum& optimum, const SearchBudget& budget,
                  double seconds) {
  Plan plan = empty_plan(problem);
  std::vector<std::pair<int, Take>> path;
  for (auto stage = optimum.found->stages.rbegin(); stage != optimum.found->stages.rend(); ++stage) path.emplace_back(stage->label, stage->take);
  const auto devices = layout.devices(path);
  std::set<int> used;
  for (const auto& stage : devices) used.insert(stage.begin(), stage.end());
  std::vector<Work> work(problem.work.size());
  for (std::size_t s = 0; s < devices.size(); ++s) {
    const FoundStage& found = optimum.found->stages[s];
    const StageSetting& setting = layout.settings[static_cast<std::size_t>(found.take.setting)];
    const StageSum sum = cuts.stage(found.low, found.high, work.data());
    const StageTime time = problem.cost.time(sum, setting, found.recompute);
    StagePlan stage;
    stage.name = std::to_string(s);
    for (const int node : cuts.nodes(found.low, found.high))
      for (const int layer : problem.graph.layers[static_cast<std::size_t>(node)])
        stage.layers.push_back(problem.profile->layers[static_cast<std::size_t>(layer)].name);
    for (const int device : devices[s]) stage.ranks.push_back(static_cast<int>(std::distance(used.begin(), used.find(device))));
    stage.recompute = found.recompute;
    stage.predicted = {time.forward_ms, time.backward_ms, time.update_ms, time.transfer_ms, time.reduce_ms, time.load_ms, 0, 1, 1};
    stage.predicted.memory_bytes = problem.cost.memory_bytes(sum, setting, {1, 1}, found.recompute);
    plan.stages.push_back(std::move(stage));
  }
  plan.predicted.period_ms = optimum.period_ms;
  plan.predicted.bound_ms = optimum.bound_ms;
  plan.predicted.certified = optimum.certified;
  plan.search = {seconds, budget.states};
  return plan;
}

}  // namespace pipedream
