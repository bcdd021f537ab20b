#include <algorithm>
#include <memory>

#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kMostIdeals = 1'000'000;

// The best over the layouts; a layout is searched only for plans faster than what is known.
struct BestPlan {
  std::optional<Plan> plan;
  double bound_ms = std::numeric_limits<double>::infinity();
  bool certified = true;
  double period_ms = std::numeric_limits<double>::infinity();

  void search(const PlanProblem& problem, const CutFamily& cuts, const std::vector<DeviceLayout>& layouts, SearchBudget& budget) {
    for (const DeviceLayout& layout : layouts) {
      const SearchSpace space = make_space(problem, cuts, layout);
      const Optimum optimum = optimise(space, period_ms, budget);
      if (optimum.found && optimum.period_ms < period_ms) {
        plan = plan_of(problem, cuts, layout, *optimum.found);
        period_ms = optimum.period_ms;
      }
      bound_ms = std::min(bound_ms, optimum.found || !optimum.certified ? optimum.bound_ms : std::numeric_limits<double>::infinity());
      certified = certified && optimum.certified;
    }
  }

  [[nodiscard]] Answer answer(const SearchBudget& budget) const {
    return {plan, plan ? std::min(bound_ms, plan->predicted.period_ms) : 0, certified && plan.has_value(), budget.states};
  }
};

}  // namespace

Answer plan_exact(const PlanProblem& problem, std::int64_t most_states) {
  SearchBudget budget{0, most_states};
  const auto layouts = device_layouts(*problem.cluster, problem.kinds, problem.options.straight);
  BestPlan best;
  if (const auto cuts = CutFamily::all(problem.graph, problem.work, kMostIdeals)) {
    best.search(problem, *cuts, layouts, budget);
    if (best.certified) return best.answer(budget);
  }
  Answer answer = plan_linear(problem, most_states);
  answer.certified = false;
  return answer;
}

Answer plan_linear(const PlanProblem& problem, std::int64_t most_states) {
  SearchBudget budget{0, most_states};
  const auto layouts = device_layouts(*problem.cluster, problem.kinds, problem.options.straight);
  std::vector<int> order(static_cast<std::size_t>(problem.graph.size()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  const CutFamily cuts = CutFamily::prefixes(problem.graph, problem.work, order);
  BestPlan best;
  best.search(problem, cuts, layouts, budget);
  Answer answer = best.answer(budget);
  answer.certified = false;
  return answer;
}

}  // namespace pipedream
