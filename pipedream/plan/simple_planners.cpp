#include <algorithm>
#include <numeric>

#include "pipedream/plan/problem.hpp"

// Planners that do not search: what people do by hand.
namespace pipedream {
namespace {

// With recomputation where the plan does not fit without it, if that is allowed.
Answer scored(const PlanProblem& problem, const std::vector<std::vector<int>>& nodes, const std::vector<std::vector<int>>& devices) {
  std::vector<bool> recompute(nodes.size(), problem.options.recompute == Recompute::Always);
  Plan plan = plan_of(problem, nodes, devices, recompute);
  if (problem.options.recompute == Recompute::Auto) {
    for (const auto& [stage, bytes] : memory_excess(plan, *problem.cluster)) recompute[static_cast<std::size_t>(stage)] = true;
    plan = plan_of(problem, nodes, devices, recompute);
  }
  return {std::move(plan), 0, false, 1};
}

std::vector<int> numbers(int begin, int end) {
  std::vector<int> result(static_cast<std::size_t>(end - begin));
  std::iota(result.begin(), result.end(), begin);
  return result;
}

}  // namespace

Answer plan_single(const PlanProblem& problem) { return scored(problem, {numbers(0, problem.graph.size())}, {{0}}); }

Answer plan_data_parallel(const PlanProblem& problem) {
  return scored(problem, {numbers(0, problem.graph.size())}, {numbers(0, problem.cluster->num_devices())});
}

Answer plan_uniform(const PlanProblem& problem) {
  const int n = problem.graph.size();
  int stages = std::min(n, problem.cluster->num_devices());
  if (problem.options.max_stages > 0) stages = std::min(stages, problem.options.max_stages);
  const int ranks = problem.options.straight ? stages : problem.cluster->num_devices();
  std::vector<std::vector<int>> nodes, devices;
  for (int s = 0; s < stages; ++s) {  // the remainders go to the first stages
    const auto share = [stages](int total, int index) { return total / stages * index + std::min(index, total % stages); };
    nodes.push_back(numbers(share(n, s), share(n, s + 1)));
    devices.push_back(numbers(share(ranks, s), share(ranks, s + 1)));
  }
  return scored(problem, nodes, devices);
}

}  // namespace pipedream
