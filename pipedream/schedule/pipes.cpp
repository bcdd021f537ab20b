#include "pipedream/schedule/pipes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"

namespace pipedream {
namespace {

// Position of a chunk along its pipe.
int position_of(Placement placement, const Pipes& pipes, int chunk) {
  switch (placement) {
    case Placement::Loop:
      return chunk % pipes.positions;
    case Placement::Vee:
      return chunk < pipes.positions ? chunk : 2 * pipes.positions - 1 - chunk;
    default:
      return chunk;
  }
}

}  // namespace

Pipes find_pipes(const Schedule& schedule, Placement placement) {
  if (schedule.edges != chain_edges(schedule.num_chunks()))
    throw UsageError(fmt::format("{} needs chunks that form a chain", schedule.name), "1f1b and 1f1b-async run graphs of chunks");
  const auto& ranks = schedule.chunk_ranks;
  Pipes pipes;
  pipes.chunks = schedule.num_chunks();
  pipes.count = static_cast<int>(ranks.front().size());
  pipes.positions = schedule.num_ranks() / pipes.count;
  const bool two_chunks = placement == Placement::Vee;
  bool fits = pipes.positions * pipes.count == schedule.num_ranks() && pipes.positions <= pipes.chunks;
  if (placement == Placement::Chain) fits = fits && pipes.positions == pipes.chunks;
  if (two_chunks) fits = fits && 2 * pipes.positions == pipes.chunks;
  for (int chunk = 0; fits && chunk < pipes.chunks; ++chunk)
    fits = ranks[static_cast<std::size_t>(chunk)] == ranks[static_cast<std::size_t>(position_of(placement, pipes, chunk))];
  if (!fits)
    throw UsageError(fmt::format("{} cannot run chunks placed like this: {} chunks on {} ranks", schedule.name, pipes.chunks, schedule.num_ranks()),
                     two_chunks                     ? "rank k of p holds chunks k and 2 p - 1 - k"
                     : placement == Placement::Loop ? "rank k of p holds chunks k, k + p, k + 2 p, ..."
                                                    : "every rank holds one chunk, all chunks as many replicas");
  return pipes;
}

ActionLists on_pipes(const Schedule& schedule, Placement placement, int first, int count, const PipeGenerator& generator) {
  const Pipes pipes = find_pipes(schedule, placement);
  ActionLists lists(schedule.ranks.size());
  for (int pipe = 0; pipe < pipes.count; ++pipe) {
    const auto rank_at = [&](int position) { return schedule.chunk_ranks[static_cast<std::size_t>(position)][static_cast<std::size_t>(pipe)]; };
    const std::vector<int> own = own_micro_batches(schedule, 0, rank_at(0), first, count);
    if (own.empty()) continue;
    ActionLists local = generator(pipes, static_cast<int>(own.size()));
    for (int position = 0; position < pipes.positions; ++position) {
      auto& list = lists[static_cast<std::size_t>(rank_at(position))] = std::move(local[static_cast<std::size_t>(position)]);
      for (Action& action : list) action.micro_batch = own[static_cast<std::size_t>(action.micro_batch)];
    }
  }
  return lists;
}

Schedule flushing_pipes(const ScheduleRequest& request, Placement placement, const PipeGenerator& generator) {
  return merge_backward(flushing_schedule(request, [&](const Schedule& schedule, int first,
                                                       int count) { return on_pipes(schedule, placement, first, count, generator); }),
                        /*only_first=*/true);
}

}  // namespace pipedream
