#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// All forwards, then all backwards in reverse; with slices this is TeraPipe's order (2102.07988).
ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  ActionLists lists(schedule.ranks.size());
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk)
    for (const int rank : schedule.chunk_ranks[static_cast<std::size_t>(chunk)]) {
      auto& list = lists[static_cast<std::size_t>(rank)];
      for (const int micro_batch : own_micro_batches(schedule, chunk, rank, first, count))
        for (int slice = 0; slice < schedule.slices; ++slice) list.push_back({ActionKind::Forward, chunk, micro_batch, slice});
    }
  for (int chunk = schedule.num_chunks() - 1; chunk >= 0; --chunk)
    for (const int rank : schedule.chunk_ranks[static_cast<std::size_t>(chunk)]) {
      auto& list = lists[static_cast<std::size_t>(rank)];
      const std::vector<int> own = own_micro_batches(schedule, chunk, rank, first, count);
      for (auto micro_batch = own.rbegin(); micro_batch != own.rend(); ++micro_batch)
        for (int slice = schedule.slices - 1; slice >= 0; --slice) list.push_back({ActionKind::Backward, chunk, *micro_batch, slice});
    }
  return lists;
}

}  // namespace

Schedule generate_gpipe(const ScheduleRequest& request) { return flushing_schedule(request, mini_batch); }

}  // namespace pipedream
