#pragma once

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/planner.hpp"

namespace pipedream {

/// A plan for any schedule that can be trained with. Where the planner knows the schedule, its plan. Else the cuts are those of 1F1B: the chunks (as
/// many per rank as the schedule lays there) carry equal loads, each is put where the schedule wants it, and period and memory are what the simulator
/// finds; the bound is the load of the fullest rank, and nothing is certified.
/// @throws UsageError for a schedule that keeps two copies of the model or slices sequences: these can be simulated only
[[nodiscard]] Plan plan_for_schedule(const Profile& profile, const Cluster& cluster, const PlanOptions& options);

}  // namespace pipedream
