#include "pipedream/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr double kStatesPerSecond = 5e6;  // roughly; the limit on states makes the same input give the same plan, a clock would not

struct PlannerEntry {
  PlannerInfo info;
  std::function<Answer(const PlanProblem&, std::int64_t)> run;
};

const std::vector<PlannerEntry>& planners() {
  static const std::vector<PlannerEntry> table{
      {{"exact", "the best plan over all cuts of the layer graph, replicas and placements, with a proof"}, plan_exact},
      {{"linear", "the best plan over the cuts of one topological order"}, plan_linear},
      {{"uniform", "equal numbers of layers, replicas spread evenly"},
       [](const PlanProblem& problem, std::int64_t) { return plan_uniform(problem); }},
      {{"data-parallel", "one stage, a replica on every device"},
       [](const PlanProblem& problem, std::int64_t) { return plan_data_parallel(problem); }},
      {{"single", "one stage on one device"}, [](const PlanProblem& problem, std::int64_t) { return plan_single(problem); }},
  };
  return table;
}

const PlannerEntry& planner_named(const std::string& name) {
  std::string names;
  for (const PlannerEntry& entry : planners()) {
    if (entry.info.name == name) return entry;
    names += (names.empty() ? "" : ", ") + entry.info.name;
  }
  throw UsageError(fmt::format("unknown planner '{}'", name), "choose one of: " + names);
}

void check_memory(const PlanProblem& problem, const Plan& plan) {
  const auto excess = memory_excess(plan, *problem.cluster);
  if (excess.empty()) return;
  fail_infeasible(problem);
}

}  // namespace

std::vector<PlannerInfo> list_planners() {
  std::vector<PlannerInfo> result;
  for (const PlannerEntry& entry : planners()) result.push_back(entry.info);
  return result;
}

std::vector<std::pair<std::string, std::string>> list_cost_models() {
  return {{"ring", "ring all-reduce and transfers beside compute, memory by schedule and policy"}};
}

Plan make_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const PlannerEntry& planner = planner_named(options.planner);
  const PlanProblem problem = make_problem(profile, cluster, options);
  Answer answer = planner.run(problem, static_cast<std::int64_t>(options.time_limit_s * kStatesPerSecond));
  if (!answer.plan) fail_infeasible(problem);
  Plan plan = std::move(*answer.plan);
  check_memory(problem, plan);
  plan.predicted.bound_ms = answer.bound_ms;
  plan.predicted.certified = answer.certified;
  plan.search.states = answer.states;
  if (options.alternatives) plan.alternatives = list_alternatives(problem, plan, answer.states);
  plan.search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

}  // namespace pipedream
