#include <fmt/format.h>

#include <numeric>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/dual_pipe.hpp"
#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

// DualPipe cut in half: p ranks, rank r with stages r and 2p-1-r, one copy of the model. The second half of the way comes back over the same ranks.
ActionLists one_pipe(const Pipes& pipes, int micro_batches) {
  const int p = pipes.positions;
  if (micro_batches < 2 * p)
    throw UsageError(
        fmt::format("dualpipe-v needs at least twice as many micro-batches per step as ranks in the pipe: {} < {}", micro_batches, 2 * p),
        "use zb-v for fewer micro-batches");
  std::vector<int> all(static_cast<std::size_t>(micro_batches));
  std::iota(all.begin(), all.end(), 0);
  ActionLists lists;
  for (int r = 0; r < p; ++r) lists.push_back(DualPipeRank({r, all}, {2 * p - 1 - r, all}).list(p, r, micro_batches - 2 * p + r + 1));
  return lists;
}

}  // namespace

Schedule generate_dual_pipe_v(const ScheduleRequest& request) { return flushing_pipes(request, Placement::Vee, one_pipe); }

}  // namespace pipedream
