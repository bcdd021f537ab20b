#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// What a generator needs to know. Every generator is one file; the table of them is in generate.cpp.
struct ScheduleRequest {
  std::string name = "1f1b-async";
  std::string policy;                         ///< empty: the schedule's own default
  std::vector<std::vector<int>> chunk_ranks;  ///< per chunk the ranks of its replicas
  std::vector<std::pair<int, int>> edges;     ///< between chunks; empty: a chain
  int micro_batches = 1;                      ///< of the whole pass
  int step_micro_batches = 1;                 ///< per optimizer step
  int slices = 1;
  int extra_in_flight = 0;  ///< 1f1b-async: micro-batches in flight at the first chunk beyond the fewest that fill the pipe; fewer behind it
};

/// Compute and optimizer actions only. @throws UsageError if the name is unknown or the request does not suit the schedule
[[nodiscard]] Schedule generate(const ScheduleRequest& request);

/// What runs: generate, then versions, communication, reductions and frees, then the validator.
[[nodiscard]] Schedule make_schedule(const ScheduleRequest& request);

struct ScheduleInfo {
  std::string name, summary, default_policy;
};
/// All schedules (for `pipedream list`), and all version policies as (name, one line).
[[nodiscard]] std::vector<ScheduleInfo> list_schedules();
[[nodiscard]] std::vector<std::pair<std::string, std::string>> list_policies();

}  // namespace pipedream
