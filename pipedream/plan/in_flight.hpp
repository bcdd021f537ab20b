#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pipedream {

/// Where a stage stands in its pipeline; all that the number of micro-batches in flight depends on.
struct StagePosition {
  int replicas = 1;         ///< R_s of this stage
  int ranks_from_here = 1;  ///< of this stage and all later ones: N - sum_{i<s} R_i
  bool operator==(const StagePosition&) const = default;
};

/// What a replica of a stage holds at its peak.
struct InFlight {
  int micro_batches = 1;  ///< between forward and backward
  int versions = 1;       ///< of its weights
  bool operator==(const InFlight&) const = default;
};

/// Micro-batches and versions at the peak as a function of the position. More ranks behind a stage never mean fewer in flight.
using InFlightModel = std::function<InFlight(const StagePosition&)>;

/// The models of the schedules that are planned for. With K = ranks_from_here, R = replicas, m micro-batches per mini-batch, e extra:
///   1f1b-async       floor((K - 1) / R) + 1 + e: warm-up of 1F1B-RR plus the one being worked on (PipeDream, runtime of the original)
///   1f1b             min(ceil(m / R), floor((K - 1) / R) + 1 + e)     gpipe  ceil(m / R)     model-parallel, data-parallel  1
/// Versions: flush and none 1; stash and predict as many as in flight; 2bw 2; vertical-sync those of a source stage without replicas, K + e at most
/// (an upper bound: the source's replicas are not known from the position).
/// @throws UsageError for an unknown schedule or policy
[[nodiscard]] InFlightModel in_flight_model(const std::string& schedule, const std::string& policy, int micro_batches, int extra_in_flight);

/// Schedules that can be planned for, as (name, default policy).
[[nodiscard]] const std::vector<std::pair<std::string, std::string>>& planned_schedules();
/// The schedule flushes at every mini-batch (its period includes fill and drain).
[[nodiscard]] bool flushes(const std::string& schedule);
[[nodiscard]] std::string default_policy(const std::string& schedule);

}  // namespace pipedream
