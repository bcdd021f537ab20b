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

Schedule add_reductions(const Schedule& schedule, bool overlap) {
  Schedule result = unrolled(schedule);
  for (RankProgram& program : result.ranks) {
    const std::vector<Action> list = std::move(program.prologue);
    std::vector<std::pair<std::size_t, Action>> inserts;  // before which action
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& step = list[i];
      if (step.kind != ActionKind::Step || schedule.chunk_ranks[static_cast<std::size_t>(step.chunk)].size() < 2) continue;
      const std::size_t place = overlap ? after_last_backward(list, i) : i;
      inserts.emplace_back(place, Action{ActionKind::Reduce, step.chunk, step.micro_batch});
      if (place != i) inserts.emplace_back(i, Action{ActionKind::Wait, step.chunk, step.micro_batch});
    }
    std::stable_sort(inserts.begin(), inserts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
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
