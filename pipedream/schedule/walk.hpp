#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Runs the compute, step and reduce actions of all ranks in the order of time, with unit costs (forward 1, backward 2, its parts 1 each,
/// others 0) and free transfers: the order in which passes insert actions and in which a grid is drawn. Transfers and drops are skipped.
/// Joined actions run as one: all their inputs are awaited before, all their outputs appear after. A reduction starts on all its ranks at one
/// moment, when the last of them has come to it; one that a Wait joins later holds only the Wait.
class Walk {
 public:
  Walk(const Schedule& schedule, const ActionLists& lists)
      : schedule_(schedule),
        lists_(lists),
        graph_(chunk_graph(schedule)),
        index_(schedule),
        next_(lists.size(), 0),
        unit_end_(lists.size(), 0),
        busy_(lists.size(), 0),
        forward_done_(index_.size, 0),
        gradient_done_(index_.size, 0) {}

  /// start(rank, index, time) before and end(rank, index, time) after every action. False if some rank gets stuck; see `position`.
  template <typename Start, typename End>
  bool run(Start&& start, End&& end) {
    const int ranks = static_cast<int>(lists_.size());
    for (int rank = 0; rank < ranks; ++rank) begin_next(rank, 0, start);
    std::vector<int> retry;
    while (!events_.empty()) {
      const std::int64_t now = events_.top().first;
      retry.clear();
      while (!events_.empty() && events_.top().first == now) {
        const int rank = events_.top().second;
        events_.pop();
        if (rank < 0) retry.push_back(-1 - rank);
        else finish(rank, now, end, retry);
      }
      std::sort(retry.begin(), retry.end());
      retry.erase(std::unique(retry.begin(), retry.end()), retry.end());
      for (const int rank : retry) begin_next(rank, now, start);
    }
    for (std::size_t rank = 0; rank < lists_.size(); ++rank)
      if (next_[rank] < lists_[rank].size()) return false;
    return true;
  }

  /// Index of the first action of a rank that has not run.
  [[nodiscard]] std::size_t position(int rank) const { return next_[static_cast<std::size_t>(rank)]; }

  static std::int64_t cost(ActionKind kind) {
    switch (kind) {
      case ActionKind::Backward:
        return 2;
      case ActionKind::Forward:
      case ActionKind::Recompute:
      case ActionKind::BackwardInput:
      case ActionKind::BackwardWeight:
        return 1;
      default:
        return 0;
    }
  }

 private:
  using Event = std::pair<std::int64_t, int>;  ///< time; rank whose action ends, or -1 - rank that may go on

  template <typename Start>
  void begin_next(int rank, std::int64_t now, Start&& start) {
    const auto r = static_cast<std::size_t>(rank);
    if (busy_[r]) return;
    const auto& list = lists_[r];
    while (next_[r] < list.size() && is_transfer(list[next_[r]].kind)) start(rank, next_[r]++, now);
    if (next_[r] >= list.size()) return;
    std::size_t end = next_[r] + 1;
    while (list[end - 1].joined && end < list.size()) ++end;
    std::int64_t duration = 0;
    for (std::size_t i = next_[r]; i < end; ++i) {
      if (!ready(list[i], list.data() + next_[r], list.data() + i)) return;
      duration += cost(list[i].kind);
    }
    unit_end_[r] = end;
    busy_[r] = 1;
    const Action& action = list[next_[r]];
    if (action.kind == ActionKind::Reduce && !is_async(rank, action)) return arrive(action, now, start);
    if (action.kind == ActionKind::Reduce && ++arrived_at(action) == replicas(action))
      for (const int other : schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)]) events_.emplace(now, -1 - other);  // their Waits go on
    for (std::size_t i = next_[r]; i < end; ++i) start(rank, i, now);
    events_.emplace(now + duration, rank);
  }

  [[nodiscard]] bool ready(const Action& action, const Action* unit_begin, const Action* self) {
    const auto c = static_cast<std::size_t>(action.chunk);
    const auto within_unit = [&](int chunk, bool gradient) {  // made by an earlier action of the same unit
      return std::any_of(unit_begin, self, [&](const Action& a) {
        return a.chunk == chunk && a.micro_batch == action.micro_batch && a.slice == action.slice &&
               (gradient ? gives_gradient(a.kind) : a.kind == ActionKind::Forward);
      });
    };
    if (action.kind == ActionKind::Forward) {
      for (const int source : graph_.predecessors[c])
        if (!forward_done_[index_(source, action.micro_batch, action.slice)] && !within_unit(source, false)) return false;
    } else if (gives_gradient(action.kind)) {
      for (const int target : graph_.successors[c])
        if (!gradient_done_[index_(target, action.micro_batch, action.slice)] && !within_unit(target, true)) return false;
    } else if (action.kind == ActionKind::Wait) {
      return arrived_at(action) == replicas(action);
    }
    return true;
  }

  [[nodiscard]] int replicas(const Action& action) const {
    return static_cast<int>(schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)].size());
  }

  /// Whether a Wait joins this reduction; looks no further than the step it belongs to.
  [[nodiscard]] bool is_async(int rank, const Action& reduction) const {
    const auto& list = lists_[static_cast<std::size_t>(rank)];
    for (std::size_t i = next_[static_cast<std::size_t>(rank)] + 1; i < list.size(); ++i)
      if (list[i].chunk == reduction.chunk && (list[i].kind == ActionKind::Wait || list[i].kind == ActionKind::Step))
        return list[i].kind == ActionKind::Wait;
    return false;
  }

  template <typename Start>
  void arrive(const Action& action, std::int64_t now, Start&& start) {
    const auto& ranks = schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)];
    if (++arrived_at(action) < static_cast<int>(ranks.size())) return;
    for (const int rank : ranks) {
      start(rank, next_[static_cast<std::size_t>(rank)], now);
      events_.emplace(now, rank);
    }
  }

  int& arrived_at(const Action& action) {
    if (arrived_.empty()) arrived_.resize(static_cast<std::size_t>(schedule_.num_chunks()) * index_.micro_batches, 0);
    return arrived_[static_cast<std::size_t>(action.chunk) * index_.micro_batches + static_cast<std::size_t>(action.micro_batch)];
  }

  template <typename End>
  void finish(int rank, std::int64_t now, End&& end, std::vector<int>& retry) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t first = next_[r];
    next_[r] = unit_end_[r];
    busy_[r] = 0;
    retry.push_back(rank);
    for (std::size_t i = first; i < unit_end_[r]; ++i) {
      const Action& action = lists_[r][i];
      const auto c = static_cast<std::size_t>(action.chunk);
      end(rank, i, now);
      if (action.kind == ActionKind::Forward) {
        forward_done_[index_(action.chunk, action.micro_batch, action.slice)] = 1;
        for (const int target : graph_.successors[c]) retry.push_back(schedule_.rank_of(target, action.micro_batch));
      } else if (gives_gradient(action.kind)) {
        gradient_done_[index_(action.chunk, action.micro_batch, action.slice)] = 1;
        for (const int source : graph_.predecessors[c]) retry.push_back(schedule_.rank_of(source, action.micro_batch));
      }
    }
  }

  const Schedule& schedule_;
  const ActionLists& lists_;
  ChunkGraph graph_;
  WorkIndex index_;
  std::vector<std::size_t> next_, unit_end_;
  std::vector<char> busy_, forward_done_, gradient_done_;
  std::vector<int> arrived_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace pipedream
