#include "pipedream/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr double kStatesPerSecond = 1e7;  // roughly; the limit on states makes the same input give the same plan, a clock would not

struct PlannerEntry {
  PlannerInfo info;
  std::function<Answer(const PlanProblem&, std::int64_t)> run;
};

const std::vector<PlannerEntry>& planners() {
  static const std::vector<PlannerEntry> table{
      {{"exact", "the best plan over all cuts of the layer graph, replicas and placements, with a proof"}, plan_exact},
      {{"linear", "the best plan over the cuts of one topological order"}, plan_linear},
      {{"pipedream", "the search space of the original optimizer, level by level"},
       [](const PlanProblem& problem, std::int64_t) { return plan_original(problem); }},
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

// Their costs are defined over the original's states and levels only, so every searching planner walks those.
bool is_original(const std::string& cost_model) { return cost_model == "paper" || cost_model == "released"; }
bool searches(const std::string& planner) { return planner == "exact" || planner == "linear" || planner == "pipedream"; }

void check_memory(const PlanProblem& problem, const Plan& plan) {
  const auto excess = memory_excess(plan, *problem.cluster);
  if (excess.empty()) return;
  fail_infeasible(problem);
}

/// The fastest of the plans that need no search and fit.
std::optional<Plan> simple_plan(const PlanProblem& problem) {
  std::optional<Plan> best;
  for (const auto plan_one : {plan_data_parallel, plan_uniform, plan_single}) {
    std::optional<Plan> plan = plan_one(problem).plan;
    if (!plan || !memory_excess(*plan, *problem.cluster).empty()) continue;
    if (!problem.options.fewer_devices && plan->num_ranks() < problem.cluster->num_devices()) continue;
    if (!best || plan->predicted.period_ms < best->predicted.period_ms) best = std::move(plan);
  }
  return best;
}

}  // namespace

// No plan beats all devices at work all the time on the compute alone; a pipeline that flushes also runs one micro-batch through all stages.
double floor_ms(const PlanProblem& problem) {
  if (problem.work.size() > 1) return 0;
  double all = 0, fastest = 0;
  for (const int kind : problem.kinds.of_device) {
    all += problem.kinds.kinds[static_cast<std::size_t>(kind)].speed;
    fastest = std::max(fastest, problem.kinds.kinds[static_cast<std::size_t>(kind)].speed);
  }
  const double ms = static_cast<double>(problem.graph.total().compute_ps()) * 1e-9 * (1 - 1e-9);
  if (problem.cost.form == CostForm::Steady) return ms / all;
  return problem.cost.form == CostForm::Sequential ? ms / fastest : ms / fastest / problem.cost.micro_batches;
}

std::vector<PlannerInfo> list_planners() {
  std::vector<PlannerInfo> result;
  for (const PlannerEntry& entry : planners()) result.push_back(entry.info);
  return result;
}

std::vector<std::pair<std::string, std::string>> list_cost_models() {
  return {{"ring", "ring all-reduce and transfers beside compute, memory by schedule and policy"},
          {"paper", "the formula printed in PipeDream (SOSP'19), over the states of its optimizer"},
          {"released", "what the released optimizer of PipeDream computes, over its states, with its options"},
          {"dnn-partitioning", "graphs of that project in their own costs: largest load of a device, transfers added"},
          {"piper", "workloads of that project in their own costs: tensor degrees, replicas and recomputation per layer, one network"}};
}

namespace {

Plan plan_for_schedule(const Profile& profile, const Cluster& cluster, const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const PlannerEntry& planner = planner_named(options.planner);
  const PlanProblem problem = make_problem(profile, cluster, options);
  const bool original = is_original(options.cost_model);
  const auto most_states = static_cast<std::int64_t>(options.time_limit_s * kStatesPerSecond);
  Answer answer = original && searches(options.planner) ? plan_original(problem) : planner.run(problem, most_states);
  if (!answer.plan && !original && answer.states >= most_states) answer.plan = simple_plan(problem);  // stopped before the first one
  if (!answer.plan && original) throw InfeasibleError("no plan keeps the memory rule of the released optimizer", "raise --memory or leave it out");
  if (!answer.plan) fail_infeasible(problem);
  Plan plan = std::move(*answer.plan);
  if (!original) check_memory(problem, plan);
  plan.predicted.bound_ms = std::max(answer.bound_ms, original ? 0 : floor_ms(problem));
  plan.predicted.certified = answer.certified;
  plan.search.states = answer.states;
  if (options.alternatives) plan.alternatives = list_alternatives(problem, plan, answer.states);
  plan.search.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return plan;
}

// Schedules that suit the policy, and mini-batches of a few sizes where the size is left to the planner.
std::vector<PlanOptions> candidates(const Cluster& cluster, const PlanOptions& options) {
  std::vector<PlanOptions> result;
  for (const auto& [schedule, policy] : planned_schedules()) {
    if (options.schedule != "auto" && options.schedule != schedule) continue;
    if (options.schedule == "auto" && !options.policy.empty() && (options.policy == "flush") != flushes(schedule)) continue;
    PlanOptions candidate = options;
    candidate.schedule = schedule;
    candidate.alternatives = false;
    if (options.micro_batches > 0) {
      result.push_back(candidate);
      continue;
    }
    for (int m = 1; m <= (flushes(schedule) ? 4 * cluster.num_devices() : 1); m *= 2) {
      candidate.micro_batches = m;
      result.push_back(candidate);
    }
  }
  return result;
}

}  // namespace

Plan make_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options) {
  if (options.schedule != "auto" && options.micro_batches != 0) return plan_for_schedule(profile, cluster, options);
  if (options.schedule != "auto") (void)default_policy(options.schedule);
  std::optional<Plan> best;
  std::optional<InfeasibleError> failure;
  std::vector<Alternative> tried;
  double seconds = 0;
  for (PlanOptions candidate : candidates(cluster, options)) {
    try {
      Plan plan = plan_for_schedule(profile, cluster, candidate);
      seconds += plan.search.seconds;
      if (best && !(plan.predicted.period_ms < best->predicted.period_ms * (1 - 1e-9))) continue;
      best = std::move(plan);
    } catch (const InfeasibleError& error) {
      failure = error;
    }
  }
  if (!best) throw failure ? *failure : InfeasibleError("no schedule suits the policy '" + options.policy + "'", "leave out --policy");
  if (options.alternatives) {
    PlanOptions chosen = options;
    chosen.schedule = best->schedule;
    chosen.micro_batches = best->micro_batches;
    best->alternatives = list_alternatives(make_problem(profile, cluster, chosen), *best, best->search.states);
  }
  best->search.seconds = seconds;
  return *best;
}

}  // namespace pipedream
