#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream::cli {

/// The options by which `schedule` and `simulate` name a schedule and its costs.
struct ScheduleOptions {
  std::string plan_file, profile_file, check_file;
  std::string schedule, policy;
  int ranks = 0, micro_batches = 0, steps = 0, chunks = 0, slices = 1, extra_in_flight = 0;
  std::string stages;         ///< "2-1-1"
  std::vector<double> costs;  ///< forward, input part, weight part, hop
  std::string memory_limit;
  std::string cluster_file, bandwidth, latency;
  double jitter = 0;
  std::uint64_t seed = 0;
};

void add_options(CLI::App& command, ScheduleOptions& options);

/// What the options ask for. `name` takes the place of options.schedule where it is not empty.
[[nodiscard]] ScheduleRequest request_of(const ScheduleOptions& options, const std::string& name = {});

struct TimedSchedule {
  Schedule schedule;
  SimulationOptions costs;
  bool has_costs = false;  ///< false: unit costs, because nothing was given
};
/// From a plan, a schedule file or a schedule's name; validated.
[[nodiscard]] TimedSchedule timed_schedule(const ScheduleOptions& options, const std::string& name = {});

}  // namespace pipedream::cli
