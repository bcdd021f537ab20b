#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// Every rank runs its own micro-batches of the mini-batch; the gradients meet before the step.
ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  ActionLists lists(schedule.ranks.size());
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    for (const int micro_batch : own_micro_batches(schedule, 0, rank, first, count)) {
      lists[static_cast<std::size_t>(rank)].push_back({ActionKind::Forward, 0, micro_batch});
      lists[static_cast<std::size_t>(rank)].push_back({ActionKind::Backward, 0, micro_batch});
    }
  return lists;
}

}  // namespace

Schedule generate_data_parallel(const ScheduleRequest& request) {
  if (request.chunk_ranks.size() != 1)
    throw UsageError("data-parallel keeps the whole model on every rank: it has one chunk", "use 1f1b-async for replicated stages");
  ScheduleRequest whole = request;  // a step takes at least one micro-batch of every replica
  whole.step_micro_batches = std::max(request.step_micro_batches, static_cast<int>(request.chunk_ranks.front().size()));
  return flushing_schedule(whole, mini_batch);
}

}  // namespace pipedream
