#pragma once

#include <functional>

#include "pipedream/schedule/generators.hpp"

namespace pipedream {

/// A chain of chunks over the positions of equal, independent pipes (data parallelism around the pipeline). Replica q of every chunk belongs to pipe
/// q, which runs the micro-batches i with i mod pipes = q.
struct Pipes {
  int positions = 0;  ///< ranks along a pipe
  int chunks = 0;
  int count = 0;  ///< pipes
};

/// @throws UsageError if chunks are no chain or do not lie on the positions as `placement` says
[[nodiscard]] Pipes find_pipes(const Schedule& schedule, Placement placement);

/// Actions of one pipe per position, micro-batches numbered from 0, chunks as in the schedule.
using PipeGenerator = std::function<ActionLists(const Pipes& pipes, int micro_batches)>;

/// One mini-batch on all pipes.
[[nodiscard]] ActionLists on_pipes(const Schedule& schedule, Placement placement, int first, int count, const PipeGenerator& generator);

/// A flushing schedule of pipes.
[[nodiscard]] Schedule flushing_pipes(const ScheduleRequest& request, Placement placement, const PipeGenerator& generator);

}  // namespace pipedream
