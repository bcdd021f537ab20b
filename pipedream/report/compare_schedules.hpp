#pragma once

#include <functional>
#include <string>
#include <vector>

#include "pipedream/report/table.hpp"
#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// One schedule in a comparison: its figures, or why it cannot run.
struct ComparedSchedule {
  std::string name, policy, semantics;  ///< semantics: "synchronous", "1 step late", "up to 3 steps late"
  double period_ms = 0, bubble = 0;
  double peak_activations = 0;  ///< of the fullest rank, in activations of a whole rank's share of the model for one micro-batch
  int versions = 1, model_copies = 1;
  std::string reason;  ///< why it is infeasible; empty if it runs
};

/// Figures of a schedule that runs.
[[nodiscard]] ComparedSchedule compared(const Schedule& schedule, const SimulationResult& result);

/// How old the weights are whose gradient a step applies, at most, in words: follows from the action lists.
[[nodiscard]] std::string semantics_of(const Schedule& schedule);

/// Sorted by period, then memory; infeasible ones last with their reason.
[[nodiscard]] Table comparison_table(std::vector<ComparedSchedule> schedules);

}  // namespace pipedream
