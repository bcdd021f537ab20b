#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

struct Slotted {
  int slot;
  Action action;
};

// Two opposite pipes over the same D ranks (2107.06925). In units of D micro-batches, half of them each way: the i-th of a way runs forward on stage
// s in slot 2i + s and backward in slot 2i + 2D - 1 - s; a rank takes its actions by slot. The next unit is 2D slots later.
void add_way(const Schedule& schedule, int entry, int first, int count, std::vector<std::vector<Slotted>>& slots) {
  const int depth = schedule.num_chunks();
  for (int stage = 0; stage < depth; ++stage) {
    const int rank = schedule.chunk_ranks[static_cast<std::size_t>(stage)][static_cast<std::size_t>(entry)];
    const std::vector<int> own = own_micro_batches(schedule, stage, rank, first, count);
    for (int n = 0; n < static_cast<int>(own.size()); ++n) {
      const int i = n % (depth / 2), unit = n / (depth / 2) * 2 * depth;
      slots[static_cast<std::size_t>(rank)].push_back({unit + 2 * i + stage, {ActionKind::Forward, stage, own[static_cast<std::size_t>(n)]}});
      slots[static_cast<std::size_t>(rank)].push_back(
          {unit + 2 * i + 2 * depth - 1 - stage, {ActionKind::Backward, stage, own[static_cast<std::size_t>(n)]}});
    }
  }
}

ActionLists mini_batch(const Schedule& schedule, int first, int count) {
  std::vector<std::vector<Slotted>> slots(schedule.ranks.size());
  for (int entry = 0; entry < static_cast<int>(schedule.chunk_ranks.front().size()); ++entry) add_way(schedule, entry, first, count, slots);
  ActionLists lists(slots.size());
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    std::stable_sort(slots[rank].begin(), slots[rank].end(), [](const Slotted& a, const Slotted& b) { return a.slot < b.slot; });
    for (const Slotted& slotted : slots[rank]) lists[rank].push_back(slotted.action);
  }
  return lists;
}

}  // namespace

void require_mirror(const Schedule& schedule) {
  const auto& ranks = schedule.chunk_ranks;
  const std::size_t depth = ranks.size();
  bool fits = depth % 2 == 0 && ranks.front().size() % 2 == 0 && schedule.edges == chain_edges(schedule.num_chunks());
  for (std::size_t k = 0; fits && k < depth; ++k) {
    fits = ranks[k].size() == ranks.front().size();
    for (std::size_t i = 0; fits && i < ranks[k].size(); i += 2) fits = ranks[k][i] == ranks[depth - 1 - k][i + 1];
  }
  if (!fits)
    throw UsageError(fmt::format("{} needs an even number of stages, each on two ranks: stage k of p on rank k and on rank p - 1 - k", schedule.name),
                     "use an even number of ranks");
}

Schedule generate_chimera(const ScheduleRequest& request) {
  require_mirror(empty_schedule(request));
  return flushing_schedule(request, mini_batch);
}

}  // namespace pipedream
