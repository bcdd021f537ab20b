#include <fmt/format.h>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/walk.hpp"

namespace pipedream {
namespace {

[[noreturn]] void fail_stuck(const Schedule& schedule, const ActionLists& lists, const Walk& walk) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::size_t at = walk.position(rank);
    const auto& list = lists[static_cast<std::size_t>(rank)];
    if (at >= list.size()) continue;
    const int first = std::max(0, static_cast<int>(at) - 6);
    throw InputError("", fmt::format("{} of rank {} waits for ever: the actions of {} wait for each other\n{}", to_string(list[at]), rank,
                                     schedule.name, grid_text(lists, first, 12, rank, static_cast<int>(at))));
  }
  throw InternalError("a walk that got nowhere has no rank that waits");
}

}  // namespace

Schedule add_communication(const Schedule& schedule) {
  Schedule result = unrolled(schedule);
  const ActionLists lists = action_lists(result);
  const ChunkGraph graph = chunk_graph(result);
  ActionLists out(lists.size());
  for (std::size_t rank = 0; rank < lists.size(); ++rank) out[rank].reserve(lists[rank].size() * 2);

  const auto transfer = [&](int rank, const Action& action, int other, ActionKind send, ActionKind receive) {
    const int target = schedule.rank_of(other, action.micro_batch);
    if (target == rank) return;
    out[static_cast<std::size_t>(rank)].push_back({send, action.chunk, action.micro_batch, action.slice, Action::kNone, other});
    out[static_cast<std::size_t>(target)].push_back({receive, other, action.micro_batch, action.slice, Action::kNone, action.chunk});
  };
  const auto start = [&](int rank, std::size_t index, std::int64_t) {
    out[static_cast<std::size_t>(rank)].push_back(lists[static_cast<std::size_t>(rank)][index]);
  };
  const auto end = [&](int rank, std::size_t index, std::int64_t) {
    const Action& action = lists[static_cast<std::size_t>(rank)][index];
    const auto chunk = static_cast<std::size_t>(action.chunk);
    if (action.kind == ActionKind::Forward)
      for (const int target : graph.successors[chunk]) transfer(rank, action, target, ActionKind::SendActivation, ActionKind::ReceiveActivation);
    else if (gives_gradient(action.kind))
      for (const int source : graph.predecessors[chunk]) transfer(rank, action, source, ActionKind::SendGradient, ActionKind::ReceiveGradient);
  };
  Walk walk(result, lists);
  if (!walk.run(start, end)) fail_stuck(result, lists, walk);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) result.ranks[rank].prologue = std::move(out[rank]);
  return result;
}

}  // namespace pipedream
