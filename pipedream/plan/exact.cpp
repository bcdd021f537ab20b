#include <algorithm>
#include <memory>

#include "pipedream/plan/orders.hpp"
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
      certified = certified && optimum.certified && !layout.is_sample;
      if (layout.is_sample) bound_ms = 0;
    }
  }

  [[nodiscard]] Answer answer(const SearchBudget& budget) const {
    return {plan, plan ? std::min(bound_ms, plan->predicted.period_ms) : 0, certified && plan.has_value(), budget.states};
  }
};

/// Nothing is faster than all devices at work all the time.
bool is_at_floor(const PlanProblem& problem, double period_ms) { return period_ms <= floor_ms(problem) * (1 + 3e-9); }

bool is_chain(const WorkGraph& graph) {
  for (int node = 1; node < graph.size(); ++node) {
    const auto& sources = graph.sources[static_cast<std::size_t>(node)];
    if (std::find(sources.begin(), sources.end(), node - 1) == sources.end()) return false;
  }
  return true;
}

/// Several orders, then small changes of the best one, for a share of the work that is allowed. Proves nothing.
Answer plan_orders(const PlanProblem& problem, const Answer& first, SearchBudget& budget) {
  constexpr int kMostSteps = 200;
  const auto layouts = layouts_of(problem);
  BestPlan best;
  best.plan = first.plan;
  if (first.plan) best.period_ms = first.plan->predicted.period_ms;
  std::vector<int> best_order;
  const auto try_order = [&](const std::vector<int>& order) {
    const double before = best.period_ms;
    best.search(problem, CutFamily::prefixes(problem.graph, problem.work, order), layouts, budget);
    if (best_order.empty() || best.period_ms < before) best_order = order;
  };
  for (const auto& order : topological_orders(problem.graph))
    if (!budget.exhausted()) try_order(order);
  for (int step = 0; step < kMostSteps && !budget.exhausted() && !is_at_floor(problem, best.period_ms); ++step)
    try_order(moved(problem.graph, best_order, static_cast<std::uint64_t>(step)));
  Answer answer{best.plan, 0, false, budget.states};
  if (best.plan && is_at_floor(problem, best.period_ms)) answer.certified = true, answer.bound_ms = best.period_ms;
  return answer;
}

}  // namespace

Answer plan_exact(const PlanProblem& problem, std::int64_t most_states) {
  // First over the prefixes of one order, which is quick. It settles graphs that are chains, and plans that no bound can beat.
  Answer first = plan_linear(problem, most_states);
  if (first.certified) return first;
  SearchBudget budget{first.states, most_states};
  BestPlan best;
  best.plan = first.plan;
  if (first.plan) best.period_ms = first.plan->predicted.period_ms;
  const auto cuts = CutFamily::all(problem.graph, problem.work, kMostIdeals);
  if (!cuts) return plan_orders(problem, first, budget);
  best.search(problem, *cuts, layouts_of(problem), budget);
  Answer answer = best.answer(budget);
  if (best.certified && best.plan) answer.bound_ms = best.plan->predicted.period_ms;
  return answer;
}

Answer plan_linear(const PlanProblem& problem, std::int64_t most_states) {
  SearchBudget budget{0, most_states};
  const auto layouts = layouts_of(problem);
  const CutFamily cuts = CutFamily::prefixes(problem.graph, problem.work, file_order(problem.graph));
  BestPlan best;
  best.search(problem, cuts, layouts, budget);
  Answer answer = best.answer(budget);
  // Of a chain these are all cuts.
  const bool chain = is_chain(problem.graph);
  const bool at_floor = best.plan && is_at_floor(problem, best.plan->predicted.period_ms);
  answer.certified = (chain && best.certified && best.plan) || at_floor;
  answer.bound_ms = answer.certified ? best.plan->predicted.period_ms : 0;
  return answer;
}

}  // namespace pipedream
