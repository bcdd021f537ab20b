#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/orders.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kMostTries = 20'000'000;  // for each alternative: a fraction of a second

std::string excess_text(const Plan& plan, const Cluster& cluster) {
  const auto excess = memory_excess(plan, cluster);
  if (excess.empty()) return "";
  const auto worst = *std::max_element(excess.begin(), excess.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("stage {} needs {} more memory", worst.first, format_bytes(static_cast<double>(worst.second)));
}

Alternative alternative_of(const std::string& name, const Plan& plan, const Plan& chosen, const Cluster& cluster) {
  Alternative a;
  a.name = name;
  a.period_ms = plan.predicted.period_ms;
  a.shape = plan.shape();
  a.bytes_per_micro_batch = plan.predicted.bytes_per_micro_batch;
  for (const StagePlan& stage : plan.stages) a.memory_bytes = std::max(a.memory_bytes, stage.predicted.memory_bytes);
  a.reason = excess_text(plan, cluster);
  a.feasible = a.reason.empty();
  compare(a, chosen);
  return a;
}

Alternative none(const std::string& name, const std::string& reason) {
  Alternative a;
  a.name = name;
  a.feasible = false;
  a.reason = reason;
  return a;
}

// The best plan under a further restriction, over the prefixes of the topological order: quick, and near enough for a comparison.
Alternative restricted(const PlanProblem& problem, const Plan& chosen, const std::string& name, int exact_stages, bool straight,
                       std::int64_t most_states) {
  const CutFamily cuts = CutFamily::prefixes(problem.graph, problem.work, file_order(problem.graph));
  SearchBudget budget{0, most_states, 0, kMostTries};
  std::optional<Plan> best;
  for (const DeviceLayout& layout :
       device_layouts(*problem.cluster, problem.kinds, straight, straight || problem.options.fewer_devices, problem.graph.size())) {
    SearchSpace space = make_space(problem, cuts, layout);
    space.shape.clear();
    space.exact_stages = exact_stages;
    if (straight) space.fewer_devices = true;
    const Optimum optimum = optimise(space, best ? best->predicted.period_ms : std::numeric_limits<double>::infinity(), budget);
    if (optimum.found) best = plan_of(problem, cuts, layout, *optimum.found);
  }
  if (best) return alternative_of(name, *best, chosen, *problem.cluster);
  return none(name, budget.exhausted() ? "not worked out: too large" : "no such plan keeps the limits");
}

}  // namespace

void compare(Alternative& a, const Plan& chosen) {
  if (!a.feasible) return;
  const double ratio = chosen.predicted.period_ms > 0 ? a.period_ms / chosen.predicted.period_ms : 1;
  if (a.shape == chosen.shape() && std::abs(ratio - 1) < 1e-9) a.reason = "this plan";
  else if (ratio > 1.005) a.reason = fmt::format("{:.2f}x the time", ratio);
  else if (ratio < 0.995) a.reason = fmt::format("faster: {:.2f}x the time", ratio);
  else a.reason = "as fast";
}

std::vector<Alternative> list_alternatives(const PlanProblem& problem, const Plan& plan, std::int64_t states) {
  if (problem.options.cost_model == "paper" || problem.options.cost_model == "released") return list_original_alternatives(problem, plan);
  std::vector<Alternative> result;
  result.push_back(alternative_of("single", *plan_single(problem).plan, plan, *problem.cluster));
  if (problem.cluster->num_devices() == 1) return result;
  result.push_back(alternative_of("data-parallel", *plan_data_parallel(problem).plan, plan, *problem.cluster));
  if (problem.options.max_stages == 1) return result;
  const std::int64_t most = std::max<std::int64_t>(2'000'000, 2 * states);
  result.push_back(restricted(problem, plan, "straight", 0, true, most));
  // With stages counted a search grows by the number of stages: only where that is small.
  const bool small = static_cast<double>(problem.graph.size()) * problem.cluster->num_devices() * plan.num_stages() < 1e6;
  if (!small) return result;
  if (plan.num_stages() > 1) result.push_back(restricted(problem, plan, "one stage less", plan.num_stages() - 1, problem.options.straight, most));
  result.push_back(restricted(problem, plan, "one stage more", plan.num_stages() + 1, problem.options.straight, most));
  return result;
}

}  // namespace pipedream
