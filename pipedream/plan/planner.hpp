#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/in_flight.hpp"
#include "pipedream/plan/plan.hpp"

namespace pipedream {

enum class Recompute { Auto, Never, Always };

/// What the user may ask of a plan. Everything has a default that fits a first try.
struct PlanOptions {
  std::string planner = "exact";        ///< one of list_planners()
  std::string cost_model = "ring";      ///< "ring", "paper", "released", "dnn-partitioning", "piper"
  std::string schedule = "1f1b-async";  ///< "auto" tries every schedule that has an in-flight model and takes the fastest
  std::string policy;                   ///< empty: the schedule's own
  std::string optimizer = "sgd";        ///< decides the optimizer state per parameter
  int micro_batches = 1;                ///< per mini-batch; 0 lets the planner choose
  int extra_in_flight = 0;              ///< micro-batches in flight beyond the fewest that fill the pipe
  int max_stages = 0;                   ///< 0: no limit
  bool straight = false;                ///< no replication
  std::vector<int> shape;               ///< replicas of each stage, first stage first; empty: the planner chooses
  bool fewer_devices = false;           ///< devices may stay idle
  Recompute recompute = Recompute::Auto;
  double transfer_overlap = 1;        ///< share of transfers hidden behind compute, 0 to 1
  double reduce_overlap = 1;          ///< share of reductions hidden behind compute, 0 to 1
  std::optional<double> compression;  ///< released: transfers count, divided by it; absent: they are free
  bool compress_branches = false;     ///< released, paper: merge the chains of branches first, as the original must for large graphs
  InFlightModel in_flight;            ///< empty: in_flight_model(schedule, ...)
  bool alternatives = true;           ///< work out what else could be done
  double time_limit_s = 10;           ///< after it the best plan so far is returned with its gap
};

/// The fastest plan under the options, with a lower bound and what else could be done.
/// @throws UsageError for unknown names or options that contradict each other, InputError for a bad profile or cluster,
///         InfeasibleError naming the tightest limit if no plan keeps it
[[nodiscard]] Plan make_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options);

/// The same plan with its predictions worked out anew, from its layers, ranks and recompute marks alone. This is a slow, separate way to the
/// numbers that make_plan gives: plans edited by hand are scored by it, and tests compare both. Bound, alternatives and search are dropped.
/// @throws InputError if the plan does not fit the profile or the cluster; a plan that exceeds memory is scored all the same
[[nodiscard]] Plan evaluate_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan);

/// Says anew how much faster or slower an alternative that fits is than the plan chosen.
void compare(Alternative& alternative, const Plan& chosen);

/// Devices that hold more than they have, as (stage, bytes over); empty if the plan fits.
[[nodiscard]] std::vector<std::pair<int, std::int64_t>> memory_excess(const Plan& plan, const Cluster& cluster);

struct PlannerInfo {
  std::string name, summary;
};
[[nodiscard]] std::vector<PlannerInfo> list_planners();

/// Cost models as (name, one line).
[[nodiscard]] std::vector<std::pair<std::string, std::string>> list_cost_models();

/// Why the plan is what it is: bottleneck, binding limit, what more devices, memory or bandwidth would give (re-solved), the next best plan.
[[nodiscard]] std::string explain_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan);

}  // namespace pipedream
