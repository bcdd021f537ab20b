#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "pipedream/schedule/validation.hpp"
#include "pipedream/schedule/walk.hpp"

namespace pipedream {
namespace {

enum class Buffers { Unbounded, Configured, Unbuffered };

const char* text_of(Buffers buffers) {
  switch (buffers) {
    case Buffers::Unbounded:
      return "with unlimited buffers";
    case Buffers::Configured:
      return "with the configured buffers";
    default:
      return "without buffers";
  }
}

/// What ranks block on: transfers, reductions and what waits for a reduction. All other actions need only their own rank, which the check of the
/// local order has settled.
struct Point {
  Action action;
  int index;              ///< in the rank's list
  int channel;            ///< of transfers: number of the (sender, receiver) pair
  int other;              ///< of transfers: the rank at the other end
  std::int32_t place;     ///< of transfers: how many of its channel come before it at this end
  bool is_async = false;  ///< a reduction that a Wait joins later
  bool is_use = false;    ///< a computation that waits for what a posted receive brings
};

struct Channel {
  int from = 0, to = 0;
  std::int32_t sends = 0, receives = 0;  ///< while points are collected: how many; while replaying: done
};

/// Replays the points of all ranks. Rank by rank as far as it goes; whoever makes progress wakes the other end.
class Replay {
 public:
  Replay(const Checked& checked) : checked_(checked), points_(checked.lists.size()) {
    std::unordered_map<std::uint64_t, int> numbers;
    for (int rank = 0; rank < static_cast<int>(points_.size()); ++rank) {
      const auto& list = checked.lists[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < list.size(); ++i) add_point(rank, static_cast<int>(i), list[i], numbers);
      if (checked.options.posted_receives) post_groups_first(points_[static_cast<std::size_t>(rank)]);
    }
  }

  Finding run(Buffers buffers, int credits) {
    buffers_ = buffers;
    credits_ = credits;
    for (Channel& channel : channels_) channel.sends = channel.receives = 0;
    next_.assign(points_.size(), 0);
    posted_until_.assign(points_.size(), 0);
    member_done_.assign(points_.size(), {});
    arrived_.assign(static_cast<std::size_t>(checked_.schedule.num_chunks()), {});
    std::vector<int> work;
    queued_.assign(points_.size(), 1);
    for (int rank = static_cast<int>(points_.size()) - 1; rank >= 0; --rank) work.push_back(rank);
    while (!work.empty()) {
      const int rank = work.back();
      work.pop_back();
      queued_[static_cast<std::size_t>(rank)] = 0;
      advance(rank, work);
    }
    for (std::size_t rank = 0; rank < points_.size(); ++rank)
      if (next_[rank] < points_[rank].size()) return stuck();
    return {};
  }

 private:
  void add_point(int rank, int index, const Action& action, std::unordered_map<std::uint64_t, int>& numbers) {
    auto& points = points_[static_cast<std::size_t>(rank)];
    if (is_transfer(action.kind)) {
      const int other = checked_.schedule.rank_of(action.peer, action.micro_batch);
      const int from = is_send(action.kind) ? rank : other, to = is_send(action.kind) ? other : rank;
      const auto [entry, is_new] =
          numbers.try_emplace(static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to), static_cast<int>(channels_.size()));
      if (is_new) channels_.push_back({from, to, 0, 0});
      Channel& channel = channels_[static_cast<std::size_t>(entry->second)];
      points.push_back({action, index, entry->second, other, is_send(action.kind) ? channel.sends++ : channel.receives++});
      if (checked_.options.posted_receives && is_receive(action.kind)) posted_[work_of(action)].push_back(points.back());
    } else if (checked_.options.posted_receives && (action.kind == ActionKind::Forward || gives_gradient(action.kind))) {
      const auto inputs = posted_.find(work_of(action));
      if (inputs == posted_.end()) return;
      for (Point point : inputs->second) {
        point.action = action;
        point.index = index;
        point.is_use = true;
        points.push_back(point);
      }
      posted_.erase(inputs);
    } else if (checked_.has_reductions && checked_.schedule.chunk_ranks[static_cast<std::size_t>(action.chunk)].size() > 1 &&
               (action.kind == ActionKind::Reduce || action.kind == ActionKind::Wait || action.kind == ActionKind::Step)) {
      points.push_back({action, index, -1, -1, 0});
      if (action.kind != ActionKind::Wait) return;
      for (auto point = points.rbegin() + 1; point != points.rend(); ++point)
        if (point->action.kind == ActionKind::Reduce && point->action.chunk == action.chunk) {
          point->is_async = true;
          return;
        }
    }
  }

  // The receives of a group are posted with its sends, whichever comes first in the list.
  static void post_groups_first(std::vector<Point>& points) {
    for (auto begin = points.begin(); begin != points.end();) {
      auto end = begin + 1;
      while ((end - 1)->action.joined && is_transfer((end - 1)->action.kind) && end != points.end()) ++end;
      std::stable_partition(begin, end, [](const Point& point) { return is_receive(point.action.kind); });
      begin = end;
    }
  }

  /// A forward and what it receives have one number, a backward and its gradients another.
  [[nodiscard]] std::size_t work_of(const Action& action) const {
    const bool forward = action.kind == ActionKind::Forward || action.kind == ActionKind::ReceiveActivation;
    return checked_.index(action.chunk, action.micro_batch, action.slice) * 2 + (forward ? 0 : 1);
  }

  void wake(int rank, std::vector<int>& work) {
    if (queued_[static_cast<std::size_t>(rank)]) return;
    queued_[static_cast<std::size_t>(rank)] = 1;
    work.push_back(rank);
  }

  void advance(int rank, std::vector<int>& work) {
    const auto r = static_cast<std::size_t>(rank);
    while (next_[r] < points_[r].size()) {
      const Point& point = points_[r][next_[r]];
      const bool passed = point.channel < 0                  ? pass_reduction(rank, point, work)
                          : checked_.options.posted_receives ? pass_posted(rank, point, work)
                          : buffers_ == Buffers::Unbuffered  ? pass_group(rank, work)
                                                             : pass_transfer(point, work);
      if (!passed) return;
    }
  }

  bool pass_transfer(const Point& point, std::vector<int>& work) {
    Channel& channel = channels_[static_cast<std::size_t>(point.channel)];
    if (is_send(point.action.kind)) {
      if (buffers_ == Buffers::Configured && channel.sends - channel.receives >= credits_) return false;
      ++channel.sends;
    } else {
      if (channel.receives >= channel.sends) return false;
      ++channel.receives;
    }
    ++next_[is_send(point.action.kind) ? static_cast<std::size_t>(channel.from) : static_cast<std::size_t>(channel.to)];
    wake(point.other, work);
    return true;
  }

  // Receives that are posted hold nobody: a send needs a buffer or a posted receive, a computation that its inputs were sent.
  bool pass_posted(int rank, const Point& point, std::vector<int>& work) {
    Channel& channel = channels_[static_cast<std::size_t>(point.channel)];
    if (point.is_use) {
      if (channel.sends <= point.place) return false;
    } else if (is_send(point.action.kind)) {
      const int credits = buffers_ == Buffers::Configured ? credits_ : 0;
      if (buffers_ != Buffers::Unbounded && channel.sends - channel.receives >= credits) return false;
      ++channel.sends;
    } else {
      ++channel.receives;
    }
    ++next_[static_cast<std::size_t>(rank)];
    wake(point.other, work);
    return true;
  }

  // A group of joined transfers is posted at once and passed when every member has met the member at its other end.
  bool pass_group(int rank, std::vector<int>& work) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t end = group_end(r);
    if (posted_until_[r] < end) {
      posted_until_[r] = end;
      member_done_[r].assign(end - next_[r], 0);
    }
    for (std::size_t i = next_[r]; i < end; ++i) {
      if (member_done_[r][i - next_[r]]) continue;
      const Point& mine = points_[r][i];
      const auto o = static_cast<std::size_t>(mine.other);
      for (std::size_t j = next_[o]; j < posted_until_[o]; ++j) {
        const Point& theirs = points_[o][j];
        if (theirs.channel != mine.channel || theirs.place != mine.place || is_send(theirs.action.kind) == is_send(mine.action.kind)) continue;
        member_done_[r][i - next_[r]] = member_done_[o][j - next_[o]] = 1;
        wake(mine.other, work);
      }
    }
    if (std::find(member_done_[r].begin(), member_done_[r].end(), 0) != member_done_[r].end()) return false;
    next_[r] = end;
    return true;
  }

  [[nodiscard]] std::size_t group_end(std::size_t r) const {
    std::size_t end = next_[r] + 1;
    while (points_[r][end - 1].action.joined && end < points_[r].size() && points_[r][end].channel >= 0) ++end;
    return end;
  }

  // Without buffers a reduction that nothing joins later holds its rank until all others are there; else only what waits for it does.
  bool pass_reduction(int rank, const Point& point, std::vector<int>& work) {
    const auto& ranks = checked_.schedule.chunk_ranks[static_cast<std::size_t>(point.action.chunk)];
    auto& arrived = arrived_[static_cast<std::size_t>(point.action.chunk)];
    const auto step = static_cast<std::size_t>(point.action.micro_batch / micro_batches_per_step(checked_.schedule, point.action.chunk));
    if (arrived.size() <= step) arrived.resize(step + 1);
    auto& here = arrived[step];
    if (point.action.kind == ActionKind::Reduce && std::find(here.begin(), here.end(), rank) == here.end()) {
      here.push_back(rank);
      if (here.size() == ranks.size())
        for (const int other : ranks)
          if (other != rank) wake(other, work);
    }
    const bool blocks = point.action.kind != ActionKind::Reduce || (buffers_ == Buffers::Unbuffered && !point.is_async);
    if (blocks && here.size() < ranks.size()) return false;
    ++next_[static_cast<std::size_t>(rank)];
    return true;
  }

  /// The rank that keeps this one from going on.
  [[nodiscard]] int blocker(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    const Point& point = points_[r][next_[r]];
    if (point.channel < 0) {
      const auto step = static_cast<std::size_t>(point.action.micro_batch / micro_batches_per_step(checked_.schedule, point.action.chunk));
      const auto& here = arrived_[static_cast<std::size_t>(point.action.chunk)][step];
      for (const int other : checked_.schedule.chunk_ranks[static_cast<std::size_t>(point.action.chunk)])
        if (std::find(here.begin(), here.end(), other) == here.end()) return other;
      return rank;
    }
    if (buffers_ != Buffers::Unbuffered || checked_.options.posted_receives) return point.other;
    for (std::size_t i = next_[r]; i < posted_until_[r]; ++i)
      if (!member_done_[r][i - next_[r]]) return points_[r][i].other;
    return point.other;
  }

  Finding stuck() const {
    int rank = 0;
    while (next_[static_cast<std::size_t>(rank)] >= points_[static_cast<std::size_t>(rank)].size()) ++rank;
    std::vector<int> way;
    while (std::find(way.begin(), way.end(), rank) == way.end() &&
           next_[static_cast<std::size_t>(rank)] < points_[static_cast<std::size_t>(rank)].size()) {
      way.push_back(rank);
      rank = blocker(rank);
    }
    const auto start = std::find(way.begin(), way.end(), rank);
    if (start != way.end()) way.erase(way.begin(), start);
    const Point& bad = points_[static_cast<std::size_t>(way.front())][next_[static_cast<std::size_t>(way.front())]];
    Violation violation = checked_.violation(RuleGroup::Deadlock, way.front(), bad.index,
                                             fmt::format("{} ranks wait for each other {}", way.size(), text_of(buffers_)));
    for (const int waiting : way) {
      const Point& point = points_[static_cast<std::size_t>(waiting)][next_[static_cast<std::size_t>(waiting)]];
      const int other = blocker(waiting);
      const auto o = static_cast<std::size_t>(other);
      const std::string there = next_[o] < points_[o].size() ? "at " + to_string(points_[o][next_[o]].action) : "at its end";
      violation.cycle.push_back(fmt::format("rank {} at {} waits for rank {}, which is {}", waiting, to_string(point.action), other, there));
    }
    return violation;
  }

  const Checked& checked_;
  std::vector<std::vector<Point>> points_;
  std::vector<Channel> channels_;
  std::unordered_map<std::size_t, std::vector<Point>> posted_;  ///< receives of which the computation has not come yet
  Buffers buffers_ = Buffers::Unbounded;
  int credits_ = 1;
  std::vector<std::size_t> next_, posted_until_;
  std::vector<std::vector<char>> member_done_;
  std::vector<std::vector<std::vector<int>>> arrived_;  ///< per chunk and step the ranks that are at its reduction
  std::vector<char> queued_;
};

// Before transfers are added the actions themselves wait for each other.
Finding check_actions(const Checked& checked) {
  Walk walk(checked.schedule, checked.lists);
  const auto nothing = [](int, std::size_t, std::int64_t) {};
  if (walk.run(nothing, nothing)) return {};
  Finding found;
  for (int rank = 0; rank < checked.schedule.num_ranks(); ++rank) {
    const auto at = walk.position(rank);
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    if (at >= list.size()) continue;
    if (!found) found = checked.violation(RuleGroup::Deadlock, rank, static_cast<int>(at), "ranks wait for each other");
    found->cycle.push_back(fmt::format("rank {} waits at {}", rank, to_string(list[at])));
  }
  return found;
}

}  // namespace

Finding check_deadlock(const Checked& checked) {
  if (!checked.has_transfers) return check_actions(checked);
  Replay replay(checked);
  if (checked.options.unbounded)
    if (Finding found = replay.run(Buffers::Unbounded, 0)) return found;
  if (checked.options.configured)
    if (Finding found = replay.run(Buffers::Configured, std::max(1, checked.options.buffers))) return found;
  if (checked.options.unbuffered)
    if (Finding found = replay.run(Buffers::Unbuffered, 0)) return found;
  return {};
}

}  // namespace pipedream
