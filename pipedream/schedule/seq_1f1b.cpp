#include <algorithm>

#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

// Seq1F1B (2406.03488): 1F1B over slices. The first backward, of the last slice, needs all slices of its micro-batch forward, hence k - 1 more
// forwards of warm-up than 1F1B's; backwards go through the slices of a micro-batch from the last to the first.
ActionLists one_pipe(const Pipes& pipes, int micro_batches, int slices) {
  const int p = pipes.positions, total = micro_batches * slices;
  ActionLists lists(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = lists[static_cast<std::size_t>(r)];
    int forwards = 0;
    const auto forward = [&] {
      list.push_back({ActionKind::Forward, r, forwards / slices, forwards % slices});
      ++forwards;
    };
    while (forwards < std::min(p - r - 2 + slices, total)) forward();
    for (int i = 0; i < total; ++i) {
      if (forwards < total) forward();
      list.push_back({ActionKind::Backward, r, i / slices, slices - 1 - i % slices});
    }
  }
  return lists;
}

}  // namespace

Schedule generate_seq_1f1b(const ScheduleRequest& request) {
  return flushing_pipes(request, Placement::Chain,
                        [&](const Pipes& pipes, int micro_batches) { return one_pipe(pipes, micro_batches, request.slices); });
}

}  // namespace pipedream
