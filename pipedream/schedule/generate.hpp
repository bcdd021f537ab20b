#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/schedule/placement.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Times of one chunk and one micro-batch, of all chunks alike, for schedules that are searched for. Only their ratios matter.
struct SearchCosts {
  double forward = 1, backward_input = 1, backward_weight = 1, transfer = 0;
  bool operator==(const SearchCosts&) const = default;
};

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
  SearchCosts costs = {};   ///< zb-auto, zb-v: what the search counts with
  std::vector<SearchCosts> chunk_costs = {};  ///< the same where chunks differ; empty: `costs` for all
  double memory_limit = 0;                    ///< zb-auto: activations of a chunk per rank; 0: as many as 1F1B holds
  double weight_share = 1;                    ///< zb-auto: share of an activation that stays from the input part to the weight part
  double search_effort = 4e7;                 ///< of searched schedules: actions that may be timed; a second or less
  std::vector<bool> recompute = {};           ///< per chunk: its forward runs again before its backward; empty: none
  bool overlap_reductions = false;            ///< gradients of replicas are reduced beside other work, with a Wait before the step
  bool group_transfers = false;               ///< transfers that cross between two ranks are posted as one group
  int receive_buffers = 0;                    ///< > 0: receives move forward in the lists as far as that many buffers allow
};

/// Compute and optimizer actions only. @throws UsageError if the name is unknown or the request does not suit the schedule
[[nodiscard]] Schedule generate(const ScheduleRequest& request);

/// What runs: generate, then versions, communication, reductions and frees, then the validator.
[[nodiscard]] Schedule make_schedule(const ScheduleRequest& request);

struct ScheduleInfo {
  std::string name, summary, default_policy;
  Placement placement = Placement::Chain;
  int chunks_per_rank = 1;  ///< where the request leaves it open
};
/// @throws UsageError listing the names
[[nodiscard]] ScheduleInfo find_schedule(const std::string& name);
/// All schedules (for `pipedream list`), and all version policies as (name, one line).
[[nodiscard]] std::vector<ScheduleInfo> list_schedules();
[[nodiscard]] std::vector<std::pair<std::string, std::string>> list_policies();

}  // namespace pipedream
