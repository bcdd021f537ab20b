#pragma once

#include <string>

#include "pipedream/report/table.hpp"
#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// Two lines: makespan, period, bubble; activations, versions, actions.
[[nodiscard]] std::string figures_text(const Schedule& schedule, const SimulationResult& result);

/// A row per rank: busy, idle and why, activations, versions, memory.
[[nodiscard]] Table rank_table(const SimulationResult& result);

/// A row per link that carried something.
[[nodiscard]] Table link_table(const SimulationResult& result);

/// One line on what determines the makespan: which ranks' computations, and how much of it is transfers and waiting between them.
[[nodiscard]] std::string critical_path_text(const SimulationResult& result);

/// Schedule and figures as one JSON value, schema "pipedream.schedule/1": the simulation's keys and the facts and rows of the schedule.
[[nodiscard]] std::string schedule_to_json(const Schedule& schedule, const SimulationResult& result);

}  // namespace pipedream
