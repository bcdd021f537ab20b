#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {

// Every rank runs its own micro-batches one after the other, forward, backward, step. Which weights a step brings is decided by the run: here the
// ranks' steps are numbered as if they were made together.
Schedule generate_asp(const ScheduleRequest& request) {
  if (request.chunk_ranks.size() != 1)
    throw UsageError("asp keeps the whole model on every rank: it has one chunk", "use 1f1b-async for replicated stages");
  if (request.step_micro_batches != 1) throw UsageError("asp steps after every micro-batch", "leave out --micro-batches, or use data-parallel");
  ScheduleRequest alone = request;
  alone.extra_in_flight = 0;  // exchanges of weights under way, not micro-batches: none is held back
  return generate_1f1b_async(alone);
}

}  // namespace pipedream
