#include <algorithm>

#include "pipedream/schedule/passes.hpp"

namespace pipedream {
namespace {

// Where the reduction of a step may start: behind the last backward of its chunk before it.
std::size_t after_last_backward(const std::vector<Action>& list, std::size_t step) {
  std::size_t place = step;
  while (place > 0 && !(is_backward(list[place - 1].kind) && list[place - 1].chunk == list[step].chunk)) {
    if (list[place - 1].kind == ActionKind::Step && list[place - 1].chunk == list[step].chunk) return step;  // nothing of this period ran here
    --place;
  }
  if (place == 0) return step;
  while (list[place - 1].joined && place < step) ++place;
  return place;
}

}  // namespace

namespace {

using Inserts = std::vector<std::pair<std::size_t, Action>>;  ///< before which action

// The reductions of steps first .. last - 1, which follow each other. All ranks of a group must meet its reductions in one order: the last chunk's
// first, because backwards end there first.
void add_overlapped(const Schedule& schedule, const std::vector<Action>& list, std::size_t first, std::size_t last, Inserts& inserts) {
  std::size_t earliest = 0;
  for (std::size_t i = last; i-- > first;) {
    if (schedule.chunk_ranks[static_cast<std::size_t>(list[i].chunk)].size() < 2) continue;
    const std::size_t place = std::max(earliest, std::min(first, after_last_backward(list, i)));
    earliest = place;
    inserts.emplace_back(place, Action{ActionKind::Reduce, list[i].chunk, list[i].micro_batch});
    inserts.emplace_back(i, Action{ActionKind::Wait, list[i].chunk, list[i].micro_batch});  // on all replicas alike, also where nothing lies between
  }
}

Inserts reductions_of(const Schedule& schedule, const std::vector<Action>& list, bool overlap) {
  Inserts inserts;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].kind != ActionKind::Step) continue;
    std::size_t end = i + 1;
    while (overlap && end < list.size() && list[end].kind == ActionKind::Step && list[end].chunk > list[end - 1].chunk) ++end;
    if (overlap) add_overlapped(schedule, list, i, end, inserts);
    else if (schedule.chunk_ranks[static_cast<std::size_t>(list[i].chunk)].size() > 1)
      inserts.emplace_back(i, Action{ActionKind::Reduce, list[i].chunk, list[i].micro_batch});
    i = end - 1;
  }
  std::stable_sort(inserts.begin(), inserts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return inserts;
}

}  // namespace

Schedule add_reductions(const Schedule& schedule, bool overlap) {
  Schedule result = unrolled(schedule);
  for (RankProgram& program : result.ranks) {
    const std::vector<Action> list = std::move(program.prologue);
    const Inserts inserts = reductions_of(schedule, list, overlap);
    program.prologue.clear();
    program.prologue.reserve(list.size() + inserts.size());
    auto insert = inserts.begin();
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (; insert != inserts.end() && insert->first == i; ++insert) program.prologue.push_back(insert->second);
      program.prologue.push_back(list[i]);
    }
  }
  return result;
}

}  // namespace pipedream
