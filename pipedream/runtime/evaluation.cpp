#include "pipedream/runtime/evaluation.hpp"

namespace pipedream {

Schedule evaluation_schedule(const Schedule& training, int micro_batches) {
  Schedule schedule;
  schedule.name = "evaluation";
  schedule.chunk_ranks = training.chunk_ranks;
  schedule.edges = training.edges;
  schedule.micro_batches = micro_batches;
  schedule.ranks.resize(training.ranks.size());
  // Every rank takes micro-batches in order and, of each, its chunks in the order of the data; so nothing waits in a circle.
  for (int i = 0; i < micro_batches; ++i)
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
      auto& actions = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(chunk, i))].prologue;
      for (const auto& [source, target] : schedule.edges)
        if (target == chunk) actions.push_back({ActionKind::ReceiveActivation, chunk, i, 0, Action::kNone, source});
      actions.push_back({ActionKind::Forward, chunk, i, 0, Action::kNone, Action::kNone});
      for (const auto& [source, target] : schedule.edges)
        if (source == chunk) actions.push_back({ActionKind::SendActivation, chunk, i, 0, Action::kNone, target});
    }
  return schedule;
}

}  // namespace pipedream
