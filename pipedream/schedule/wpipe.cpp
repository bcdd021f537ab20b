#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

struct Unit {
  int group, micro_batch;
};

// One position's list for whole periods of m micro-batches: forwards group 0, group 1 of a period; backwards group 1, group 0, a step behind each;
// merged after m + p-1-r forwards of warm-up, which is the 2p-1-r of the paper where m = p.
struct PositionList {
  std::vector<Action> actions;
  std::vector<std::size_t> pairs;  ///< where a forward with its backward begins
};

PositionList position_list(int p, int r, int m, int periods) {
  std::vector<Unit> forwards, backwards;
  for (int period = 0; period < periods; ++period)
    for (const int group : {0, 1})
      for (int i = 0; i < m; ++i) {
        forwards.push_back({group, period * m + i});
        backwards.push_back({1 - group, period * m + i});
      }
  PositionList list;
  const auto chunk = [&](const Unit& unit) { return unit.group * p + r; };
  const auto forward = [&](const Unit& unit) { list.actions.push_back({ActionKind::Forward, chunk(unit), unit.micro_batch}); };
  const auto warm_up = std::min(forwards.size(), static_cast<std::size_t>(m + p - 1 - r));
  for (std::size_t i = 0; i < warm_up; ++i) forward(forwards[i]);
  for (std::size_t i = 0; i < backwards.size(); ++i) {
    list.pairs.push_back(list.actions.size());
    if (i + warm_up < forwards.size()) forward(forwards[i + warm_up]);
    const Unit& unit = backwards[i];
    list.actions.push_back({ActionKind::Backward, chunk(unit), unit.micro_batch});
    if ((unit.micro_batch + 1) % m == 0) list.actions.push_back({ActionKind::Step, chunk(unit), unit.micro_batch});
  }
  return list;
}

}  // namespace

// WPipe (ICLR'22): 2p chunks in a ring, one optimizer step a period and group, no flush. Micro-batches that fill no period run after a drain, as a
// period of their own in interleaved order, because a group smaller than the ring would come back too early.
Schedule generate_wpipe(const ScheduleRequest& request) {
  Schedule schedule = empty_schedule(request);
  const Pipes pipes = find_pipes(schedule, Placement::Loop);
  const int p = pipes.positions, m = schedule.step_micro_batches;
  if (pipes.count != 1 || pipes.chunks != 2 * p) throw UsageError("wpipe needs two chunks on every rank and no replicas");
  if (m < p && schedule.micro_batches > m)
    throw UsageError(fmt::format("wpipe needs at least as many micro-batches per step as ranks: {} < {}", m, p),
                     fmt::format("use {} or more micro-batches per step", p));
  const int periods = schedule.micro_batches / m, rest = schedule.micro_batches % m;
  constexpr int kShown = 5;  // periods that are written out, enough for the pipe to settle
  const int more = std::max(0, periods - kShown);
  schedule.micro_batches = (periods - more) * m;
  ActionLists lists;
  std::vector<std::vector<std::size_t>> marks(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    PositionList list = position_list(p, r, m, periods - more);
    for (int k = 0; more > 0 && k <= kShown - 2; ++k) marks[static_cast<std::size_t>(r)].push_back(list.pairs[static_cast<std::size_t>(2 * m * k)]);
    lists.push_back(std::move(list.actions));
  }
  schedule.body_micro_batches = m;
  schedule.body_versions = 1;
  if (more == 0 || !fold(schedule, lists, marks, more)) {
    schedule.body_micro_batches = schedule.body_versions = 0;
    schedule.micro_batches = periods * m;
    for (int r = 0; r < p; ++r) schedule.ranks[static_cast<std::size_t>(r)].prologue = position_list(p, r, m, periods).actions;
  }
  if (rest > 0) {
    ScheduleRequest tail = request;
    tail.name = "interleaved";
    tail.micro_batches = tail.step_micro_batches = rest;
    const ActionLists last = action_lists(generate_interleaved(tail));
    for (std::size_t r = 0; r < last.size(); ++r)
      for (Action action : last[r]) {
        action.micro_batch += periods * m;
        (schedule.repeats > 0 ? schedule.ranks[r].epilogue : schedule.ranks[r].prologue).push_back(action);
      }
    schedule.micro_batches += rest;
  }
  return schedule;
}

}  // namespace pipedream
