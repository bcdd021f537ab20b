#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// Warm-up forwards until the first gradient can be back, then one forward and one backward in turn, then the remaining backwards.
// On a graph of chunks the warm-up follows the depth below a chunk, not the number of chunks (GraphPipe, 2406.17145).
ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  ActionLists lists(schedule.ranks.size());
  const std::vector<int> downstream = ranks_downstream(schedule);
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    const auto warm_up = static_cast<std::size_t>((downstream[static_cast<std::size_t>(chunk)] - 1) / static_cast<int>(ranks.size()));
    for (const int rank : ranks) {
      auto& list = lists[static_cast<std::size_t>(rank)];
      const std::vector<int> own = own_micro_batches(schedule, chunk, rank, first, count);
      for (std::size_t i = 0; i < std::min(warm_up, own.size()); ++i) list.push_back({ActionKind::Forward, chunk, own[i]});
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (i + warm_up < own.size()) list.push_back({ActionKind::Forward, chunk, own[i + warm_up]});
        list.push_back({ActionKind::Backward, chunk, own[i]});
      }
    }
  }
  return lists;
}

}  // namespace

Schedule generate_1f1b(const ScheduleRequest& request) { return flushing_schedule(request, mini_batch); }

}  // namespace pipedream
