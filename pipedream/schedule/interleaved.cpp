#include <algorithm>

#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

struct Unit {
  int lap, micro_batch;
};

// Micro-batches go through the laps (the chunks of a rank) in groups. Groups are as large as there are positions, larger where the count does not
// divide, never smaller unless there are fewer micro-batches at all: a smaller group would come back before the first position can take it.
std::vector<Unit> order_of_units(int positions, int laps, int micro_batches, bool backward) {
  const int groups = std::max(1, micro_batches / positions);
  std::vector<Unit> units;
  units.reserve(static_cast<std::size_t>(laps) * static_cast<std::size_t>(micro_batches));
  int begin = 0;
  for (int group = 0; group < groups; ++group) {
    const int size = micro_batches / groups + (group < micro_batches % groups ? 1 : 0);
    for (int k = 0; k < laps; ++k)
      for (int i = 0; i < size; ++i) units.push_back({backward ? laps - 1 - k : k, begin + i});
    begin += size;
  }
  return units;
}

// Interleaved 1F1B (Megatron-LM, 2104.04473, section 2.2): warm-up of 2 (p-1-r) + (v-1) g forwards, then one forward and one backward in turn.
// Where the chunks do not fill the last lap, the missing ones are left out of the order.
ActionLists one_pipe(const Pipes& pipes, int micro_batches) {
  const int p = pipes.positions, laps = (pipes.chunks + p - 1) / p;
  const std::vector<Unit> forwards = order_of_units(p, laps, micro_batches, false), backwards = order_of_units(p, laps, micro_batches, true);
  const int first_group = (micro_batches + std::max(1, micro_batches / p) - 1) / std::max(1, micro_batches / p);
  ActionLists lists(static_cast<std::size_t>(p));
  for (int position = 0; position < p; ++position) {
    auto& list = lists[static_cast<std::size_t>(position)];
    const auto add = [&](ActionKind kind, const Unit& unit) {
      const int chunk = unit.lap * p + position;
      if (chunk < pipes.chunks) list.push_back({kind, chunk, unit.micro_batch});
    };
    const int behind = p - 1 - position;
    const auto warm_up = std::min(forwards.size(), static_cast<std::size_t>(laps == 1 ? behind : 2 * behind + (laps - 1) * first_group));
    for (std::size_t i = 0; i < warm_up; ++i) add(ActionKind::Forward, forwards[i]);
    for (std::size_t i = 0; i < backwards.size(); ++i) {
      if (i + warm_up < forwards.size()) add(ActionKind::Forward, forwards[i + warm_up]);
      add(ActionKind::Backward, backwards[i]);
    }
  }
  return lists;
}

}  // namespace

Schedule generate_interleaved(const ScheduleRequest& request) { return flushing_pipes(request, Placement::Loop, one_pipe); }

}  // namespace pipedream
