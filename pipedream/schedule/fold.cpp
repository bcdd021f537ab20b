#include <algorithm>

#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

bool repeats_exactly(const Schedule& schedule, const std::vector<Action>& list, std::size_t begin, std::size_t end, std::size_t next_begin,
                     std::size_t next_end) {
  if (end - begin != next_end - next_begin) return false;
  for (std::size_t i = 0; i < end - begin; ++i)
    if (!(schedule.shifted(list[begin + i], 1) == list[next_begin + i])) return false;
  return true;
}

// Positions where repetition `k` begins and ends, on every rank, must hold the same actions as repetition k + 1.
bool repeats_on_all(const Schedule& schedule, const ActionLists& lists, const std::vector<std::vector<std::size_t>>& marks, std::size_t k) {
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    if (!repeats_exactly(schedule, lists[rank], marks[rank][k], marks[rank][k + 1], marks[rank][k + 1], marks[rank][k + 2])) return false;
  return true;
}

}  // namespace

bool fold(Schedule& schedule, const ActionLists& lists, const std::vector<std::vector<std::size_t>>& marks, int more) {
  const std::size_t count = marks.empty() ? 0 : marks.front().size() - 1;  // repetitions in `lists`
  if (count < 2) return false;
  // The steady stretch that is longest: repetitions first .. last that follow each other exactly.
  std::size_t first = 0, last = 0, begin = 0;
  for (std::size_t k = 0; k + 1 < count; ++k) {
    if (!repeats_on_all(schedule, lists, marks, k)) begin = k + 1;
    else if (k + 1 - begin > last - first) first = begin, last = k + 1;
  }
  if (last == first) return false;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    const auto& list = lists[rank];
    RankProgram& program = schedule.ranks[rank];
    const auto at = [&](std::size_t k) { return list.begin() + static_cast<std::ptrdiff_t>(marks[rank][k]); };
    program.prologue.assign(list.begin(), at(first));
    program.body.assign(at(first), at(first + 1));
    program.epilogue.assign(at(last + 1), list.end());
    for (Action& action : program.epilogue) action = schedule.shifted(action, more);
  }
  schedule.repeats = static_cast<int>(last + 1 - first) + more;
  schedule.micro_batches += more * schedule.body_micro_batches;
  return true;
}

}  // namespace pipedream
