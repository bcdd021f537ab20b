#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

// Breadth first (2211.05953): all micro-batches through a lap before the next lap, backwards the same way from the last lap.
ActionLists one_pipe(const Pipes& pipes, int micro_batches) {
  ActionLists lists(static_cast<std::size_t>(pipes.positions));
  for (int chunk = 0; chunk < pipes.chunks; ++chunk)
    for (int i = 0; i < micro_batches; ++i) lists[static_cast<std::size_t>(chunk % pipes.positions)].push_back({ActionKind::Forward, chunk, i});
  for (int chunk = pipes.chunks - 1; chunk >= 0; --chunk)
    for (int i = 0; i < micro_batches; ++i) lists[static_cast<std::size_t>(chunk % pipes.positions)].push_back({ActionKind::Backward, chunk, i});
  return lists;
}

}  // namespace

Schedule generate_looped_bfs(const ScheduleRequest& request) { return flushing_pipes(request, Placement::Loop, one_pipe); }

}  // namespace pipedream
