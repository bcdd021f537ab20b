#include "pipedream/sim/simulate.hpp"

#include <algorithm>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/sim/engine.hpp"
#include "pipedream/sim/memory.hpp"

namespace pipedream {
namespace {

// Micro-batches after which a schedule without flushes is at the same place again, and how many it takes until it runs steadily.
int steady_after(const Schedule& schedule) {
  int ranks = 0;
  for (const auto& replicas : schedule.chunk_ranks) ranks += static_cast<int>(replicas.size());
  // Those in flight enter at once at the start.
  int warm_up = 0;
  bool is_warm = false;
  for_each_action(schedule, schedule.chunk_ranks.front().front(), [&](const Action& action) {
    is_warm = is_warm || action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput;
    warm_up += !is_warm && action.kind == ActionKind::Forward ? 1 : 0;
  });
  return 2 * std::max(ranks, warm_up * static_cast<int>(schedule.chunk_ranks.front().size()));
}

// From the entries into the first chunk: they follow the slowest resource as soon as the pipe is full. The last entry is one period after the one
// before it; the stretch is a multiple of the body, because within a body entries may come in bursts.
double steady_period_ms(const Schedule& schedule, const std::vector<double>& entry_ms, double makespan_ms) {
  const int total = schedule.micro_batches;
  const bool flushes = schedule.policy == "flush";
  const int turn = std::max({schedule.body_micro_batches, static_cast<int>(schedule.chunk_ranks.front().size()), schedule.step_micro_batches});
  const int unit = flushes ? schedule.step_micro_batches : turn;
  const int last = flushes ? (total - 1) / unit * unit : total - 1;
  const int first_steady = flushes ? 0 : steady_after(schedule);
  const int stretch = (last - first_steady) / unit * unit;
  if (stretch <= 0) return makespan_ms / total;
  return (entry_ms[static_cast<std::size_t>(last)] - entry_ms[static_cast<std::size_t>(last - stretch)]) / stretch;
}

}  // namespace

SimulationResult simulate(const Schedule& schedule, const SimulationOptions& options) {
  Engine engine(schedule, options);
  SimulationResult result = engine.run();
  result.period_ms = steady_period_ms(schedule, engine.entry_ms(), result.makespan_ms);
  add_peaks(schedule, options, result.ranks);
  return result;
}

}  // namespace pipedream
