#include "pipedream/sim/memory.hpp"

#include <algorithm>

namespace pipedream {
namespace {

const ChunkCosts& costs_of(const SimulationOptions& options, int chunk) {
  static const ChunkCosts kNone;
  if (options.chunks.empty()) return kNone;
  return options.chunks[std::min(static_cast<std::size_t>(chunk), options.chunks.size() - 1)];
}

// Bytes by which an action changes what its rank holds.
double change_bytes(const Schedule& schedule, const SimulationOptions& options, const Action& action) {
  const ChunkCosts& costs = costs_of(options, action.chunk);
  const double kept = costs.activation_bytes / schedule.slices;
  const double weight = costs.weight_share_bytes < 0 ? kept : costs.weight_share_bytes / schedule.slices;
  switch (action.kind) {
    case ActionKind::Forward:
      return kept;
    case ActionKind::Backward:
      return -kept;
    case ActionKind::BackwardInput:
      return weight - kept;
    case ActionKind::BackwardWeight:
      return -weight;
    default:
      return 0;
  }
}

double standing_bytes(const Schedule& schedule, const SimulationOptions& options, const Occupancy& peaks, int rank) {
  double bytes = 0;
  for (const int chunk : chunks_of(schedule, rank))
    bytes += costs_of(options, chunk).fixed_bytes + costs_of(options, chunk).version_bytes * peaks.versions[static_cast<std::size_t>(chunk)];
  return bytes;
}

}  // namespace

void add_peaks(const Schedule& schedule, const SimulationOptions& options, std::vector<RankFigures>& ranks) {
  const Occupancy peaks = occupancy(schedule);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    RankFigures& figures = ranks[static_cast<std::size_t>(rank)];
    figures.peak_activations = peaks.in_flight[static_cast<std::size_t>(rank)];
    for (const int chunk : chunks_of(schedule, rank))
      figures.peak_versions = std::max(figures.peak_versions, peaks.versions[static_cast<std::size_t>(chunk)]);
    double held = 0, peak = 0;
    for_each_action(schedule, rank, [&](const Action& action) { peak = std::max(peak, held += change_bytes(schedule, options, action)); });
    figures.peak_memory_bytes = peak + standing_bytes(schedule, options, peaks, rank);
  }
}

std::vector<std::pair<double, double>> memory_over_time(const Schedule& schedule, const SimulationOptions& options, const Trace& trace, int rank) {
  double held = standing_bytes(schedule, options, occupancy(schedule), rank);
  std::vector<std::pair<double, double>> curve{{0, held}};
  for (const TimedAction& timed : trace.actions) {
    if (timed.rank != rank) continue;
    const double change = change_bytes(schedule, options, timed.action);
    if (change == 0) continue;
    held += change;
    curve.emplace_back(change > 0 ? timed.start_ms : timed.end_ms, held);
  }
  return curve;
}

}  // namespace pipedream
