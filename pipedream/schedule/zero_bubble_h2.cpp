#include <algorithm>

#include "pipedream/schedule/zero_bubble.hpp"

namespace pipedream {

// Rank r: 2(p-1-r)+1 forwards; then I(i), W(i-2r) as soon as there is one, the next forward; then the rest of W. With fewer than 2p-1 micro-batches
// the warm-up takes all there are.
ActionLists zero_bubble_h2_lists(const Pipes& pipes, int micro_batches) {
  const int p = pipes.positions, m = micro_batches;
  ActionLists lists(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = lists[static_cast<std::size_t>(r)];
    int forwards = 0;
    for (; forwards < std::min(2 * (p - 1 - r) + 1, m); ++forwards) list.push_back({ActionKind::Forward, r, forwards});
    for (int i = 0; i < m; ++i) {
      list.push_back({ActionKind::BackwardInput, r, i});
      if (i >= 2 * r) list.push_back({ActionKind::BackwardWeight, r, i - 2 * r});
      if (forwards < m) list.push_back({ActionKind::Forward, r, forwards++});
    }
    for (int i = std::max(0, m - 2 * r); i < m; ++i) list.push_back({ActionKind::BackwardWeight, r, i});
  }
  return lists;
}

Schedule generate_zero_bubble_h2(const ScheduleRequest& request) { return flushing_pipes(request, Placement::Chain, zero_bubble_h2_lists); }

}  // namespace pipedream
