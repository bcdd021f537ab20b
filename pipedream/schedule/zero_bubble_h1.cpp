#include <algorithm>

#include "pipedream/schedule/zero_bubble.hpp"

namespace pipedream {

// Rank r: p-1-r forwards; then the next forward, I(i), and W(i-r) as soon as there is one; then the rest of W.
ActionLists zero_bubble_h1_lists(const Pipes& pipes, int micro_batches) {
  const int p = pipes.positions, m = micro_batches;
  ActionLists lists(static_cast<std::size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = lists[static_cast<std::size_t>(r)];
    int forwards = 0;
    for (; forwards < std::min(p - 1 - r, m); ++forwards) list.push_back({ActionKind::Forward, r, forwards});
    for (int i = 0; i < m; ++i) {
      if (forwards < m) list.push_back({ActionKind::Forward, r, forwards++});
      list.push_back({ActionKind::BackwardInput, r, i});
      if (i >= r) list.push_back({ActionKind::BackwardWeight, r, i - r});
    }
    for (int i = std::max(0, m - r); i < m; ++i) list.push_back({ActionKind::BackwardWeight, r, i});
  }
  return lists;
}

Schedule generate_zero_bubble_h1(const ScheduleRequest& request) { return flushing_pipes(request, Placement::Chain, zero_bubble_h1_lists); }

}  // namespace pipedream
