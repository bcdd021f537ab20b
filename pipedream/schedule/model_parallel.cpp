#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// One micro-batch in flight: forward through all chunks, backward through all chunks, then the next.
ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  ActionLists lists(schedule.ranks.size());
  for (int micro_batch = first; micro_batch < first + count; ++micro_batch) {
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk)
      lists[static_cast<std::size_t>(schedule.rank_of(chunk, micro_batch))].push_back({ActionKind::Forward, chunk, micro_batch});
    for (int chunk = schedule.num_chunks() - 1; chunk >= 0; --chunk)
      lists[static_cast<std::size_t>(schedule.rank_of(chunk, micro_batch))].push_back({ActionKind::Backward, chunk, micro_batch});
  }
  return lists;
}

}  // namespace

Schedule generate_model_parallel(const ScheduleRequest& request) { return flushing_schedule(request, mini_batch); }

}  // namespace pipedream
