#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/plan/cost_model.hpp"
#include "pipedream/plan/device_layout.hpp"
#include "pipedream/plan/optimise.hpp"
#include "pipedream/plan/planner.hpp"
#include "pipedream/plan/work_graph.hpp"

/// Inside of the planners: the question in the form that searches work on, and the way back from what they found.
namespace pipedream {

struct PlanProblem {
  const Profile* profile = nullptr;
  const Cluster* cluster = nullptr;
  PlanOptions options;
  WorkGraph graph;
  std::vector<std::vector<Work>> work;  ///< per measurement and node
  DeviceKinds kinds;
  CostModel cost;
  InFlightModel in_flight;
};

/// Checks options and inputs and turns them into a problem. @throws UsageError, InputError
[[nodiscard]] PlanProblem make_problem(const Profile& profile, const Cluster& cluster, const PlanOptions& options);

/// A search space of the problem with its limits; cuts and layout must outlive it.
[[nodiscard]] SearchSpace make_space(const PlanProblem& problem, const CutFamily& cuts, const DeviceLayout& layout);

/// All layouts of the problem's devices under its options.
[[nodiscard]] std::vector<DeviceLayout> layouts_of(const PlanProblem& problem);

/// A plan without predictions, from the head of the problem.
[[nodiscard]] Plan empty_plan(const PlanProblem& problem);
/// The stages that a search found, as a plan with predictions.
[[nodiscard]] Plan plan_of(const PlanProblem& problem, const CutFamily& cuts, const DeviceLayout& layout, const Found& found);
/// A plan from node sets and devices per stage, with predictions.
[[nodiscard]] Plan plan_of(const PlanProblem& problem, const std::vector<std::vector<int>>& nodes, const std::vector<std::vector<int>>& devices,
                           const std::vector<bool>& recompute);
/// Predictions from the problem (evaluate_plan without the checks).
void predict(const PlanProblem& problem, Plan& plan);

/// No plan is faster: all devices at work on the compute all the time, and what a pipeline that flushes cannot avoid.
[[nodiscard]] double floor_ms(const PlanProblem& problem);

/// What a planner returns: no plan if there is none.
struct Answer {
  std::optional<Plan> plan;
  double bound_ms = 0;
  bool certified = false;
  std::int64_t states = 0;
};

// The planners, one file each.
[[nodiscard]] Answer plan_exact(const PlanProblem& problem, std::int64_t most_states);
[[nodiscard]] Answer plan_linear(const PlanProblem& problem, std::int64_t most_states);
[[nodiscard]] Answer plan_original(const PlanProblem& problem);
[[nodiscard]] Answer plan_uniform(const PlanProblem& problem);
[[nodiscard]] Answer plan_data_parallel(const PlanProblem& problem);
[[nodiscard]] Answer plan_single(const PlanProblem& problem);

/// What else could be done, for comparison with `plan`.
[[nodiscard]] std::vector<Alternative> list_alternatives(const PlanProblem& problem, const Plan& plan, std::int64_t states);
/// The same in the cost models of the original.
[[nodiscard]] std::vector<Alternative> list_original_alternatives(const PlanProblem& problem, const Plan& plan);
/// Names the limit that leaves no plan. @throws InfeasibleError always
[[noreturn]] void fail_infeasible(const PlanProblem& problem);

/// Bytes that cross links per micro-batch under data parallelism on all devices.
[[nodiscard]] double data_parallel_bytes(const PlanProblem& problem);

/// Bounds of the kinds of devices (DeviceKind::rate) from the work per measurement.
void set_rates(const std::vector<std::vector<Work>>& work, std::vector<DeviceKind>& kinds);

/// Numbers of the strongly connected components of a graph, in a topological order.
[[nodiscard]] std::vector<int> strong_components(int nodes, const std::set<std::pair<int, int>>& edges);

}  // namespace pipedream
