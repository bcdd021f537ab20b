#include "pipedream/schedule/dual_pipe.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// P ranks, rank r with stages r and P-1-r; half of the micro-batches enter at either end.
ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  const int depth = schedule.num_chunks();
  ActionLists lists(schedule.ranks.size());
  for (std::size_t pipe = 0; pipe < schedule.chunk_ranks.front().size(); pipe += 2)
    for (int position = 0; position < depth; ++position) {
      const int rank = schedule.chunk_ranks[static_cast<std::size_t>(position)][pipe], mirror = depth - 1 - position;
      DualPipeRank::Stream down{position, own_micro_batches(schedule, position, rank, first, count)};
      DualPipeRank::Stream up{mirror, own_micro_batches(schedule, mirror, rank, first, count)};
      const int half = static_cast<int>(down.micro_batches.size());
      if (up.micro_batches.size() != down.micro_batches.size() || half < depth)
        throw UsageError(fmt::format("dualpipe needs an even number of at least {} micro-batches per step and pipe: {} and {}", 2 * depth, half,
                                     up.micro_batches.size()));
      const int place = std::min(position, mirror);
      DualPipeRank list = position < depth / 2 ? DualPipeRank(down, up) : DualPipeRank(up, down);
      lists[static_cast<std::size_t>(rank)] = list.list(depth / 2, place, half - depth + place + 1);
    }
  return lists;
}

}  // namespace

Schedule generate_dual_pipe(const ScheduleRequest& request) {
  require_mirror(empty_schedule(request));
  return flushing_schedule(request, mini_batch);
}

}  // namespace pipedream
