#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "pipedream/core/random.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Runs a schedule on numbers instead of tensors, one action at a time, with nothing in common with the validator: mailboxes per pair of ranks, weights and
/// gradients as 64-bit hashes. What it computes in the end depends on every action, so work dropped, doubled, misrouted or on wrong weights shows.
class SlowExecutor {
 public:
  SlowExecutor(const Schedule& schedule, std::size_t capacity) : schedule_(schedule), lists_(action_lists(schedule)), capacity_(capacity), next_(lists_.size(), 0) {
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk)
      for (const int rank : schedule.chunk_ranks[static_cast<std::size_t>(chunk)]) weights_[{rank, chunk}][0] = mix_bits(static_cast<std::uint64_t>(chunk) + 100);
  }

  /// Why it went wrong, empty if it went through. Then `result` tells what was computed.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < lists_.size(); ++rank) {
        if (next_[rank] >= lists_[rank].size()) continue;
        const std::size_t before = next_[rank];
        step(static_cast<int>(rank));
        if (!wrong_.empty()) return wrong_;
        moved = moved || next_[rank] != before;
      }
    }
    for (std::size_t rank = 0; rank < lists_.size(); ++rank)
      if (next_[rank] < lists_[rank].size()) return "hangs";
    return wrong_;
  }

  /// Final weights of every rank's chunks, and gradients that no step took.
  [[nodiscard]] std::vector<std::uint64_t> result() const {
    std::vector<std::uint64_t> values;
    for (const auto& [place, versions] : weights_) {
      if (versions.empty()) {  // the last version was dropped
        values.push_back(0);
        continue;
      }
      values.push_back(static_cast<std::uint64_t>(versions.rbegin()->first));
      values.push_back(versions.rbegin()->second);
    }
    for (const auto& [place, gradient] : gradients_) values.push_back(gradient);
    return values;
  }
  [[nodiscard]] const std::map<int, std::size_t>& most_versions() const { return most_versions_; }  ///< per chunk, after in-place steps
  [[nodiscard]] const std::map<int, int>& most_live() const { return most_live_; }

 private:
  using Work = std::tuple<int, int, int>;  ///< chunk, micro-batch, slice
  static std::uint64_t hash(std::initializer_list<std::uint64_t> values) {
    std::uint64_t result = 0;
    for (const std::uint64_t value : values) result = combine_keys(result, value);
    return result;
  }

  void step(int rank) {
    const Action action = lists_[static_cast<std::size_t>(rank)][next_[static_cast<std::size_t>(rank)]];
    switch (action.kind) {
      case ActionKind::Forward: return forward(rank, action);
      case ActionKind::Recompute: return advance(rank);
      case ActionKind::Backward:
      case ActionKind::BackwardInput: return backward(rank, action);
      case ActionKind::BackwardWeight: return weight(rank, action);
      case ActionKind::SendActivation:
      case ActionKind::SendGradient: return send(rank, action);
      case ActionKind::ReceiveActivation:
      case ActionKind::ReceiveGradient: return receive(rank, action);
      case ActionKind::Reduce: return reduce(rank, action);
      case ActionKind::Step: return optimize(rank, action);
      case ActionKind::Predict: {
        if (weights_[{rank, action.chunk}].count(action.version) == 0) return fail("predicts from a version that is not there");
        predicted_[{action.chunk, action.micro_batch}] = hash({weights_[{rank, action.chunk}][action.version], static_cast<std::uint64_t>(action.peer)});
        return advance(rank);
      }
      case ActionKind::Drop:
        if (weights_[{rank, action.chunk}].erase(action.version) == 0) return fail("drops what is not there");
        return advance(rank);
      case ActionKind::Wait: return advance(rank);
    }
  }
  void advance(int rank) { ++next_[static_cast<std::size_t>(rank)]; }
  void fail(const std::string& why) { wrong_ = why; }

  std::optional<std::uint64_t> weights_for(int rank, const Action& action) {
    const auto ahead = predicted_.find({action.chunk, action.micro_batch});
    if (ahead != predicted_.end()) return ahead->second;
    const auto& versions = weights_[{rank, action.chunk}];
    const auto version = versions.find(action.version);
    if (version == versions.end()) return {};
    return version->second;
  }

  /// Sum of what comes from chunks beside this one: from mailboxes, or made on this rank.
  std::optional<std::uint64_t> inputs(int rank, const Action& action, bool gradient) {
    std::uint64_t sum = 0;
    for (const auto& [source, target] : schedule_.edges) {
      const int here = gradient ? source : target, other = gradient ? target : source;
      if (here != action.chunk) continue;
      const auto found = arrived_.find({rank, here, action.micro_batch, action.slice, other, gradient});
      if (found == arrived_.end()) return {};
      sum += found->second;
    }
    return sum;
  }

  void hand_over(int rank, const Action& action, bool gradient, std::uint64_t value) {
    for (const auto& [source, target] : schedule_.edges) {
      const int here = gradient ? target : source, other = gradient ? source : target;
      if (here == action.chunk && schedule_.rank_of(other, action.micro_batch) == rank) arrived_[{rank, other, action.micro_batch, action.slice, here, gradient}] = value;
    }
  }

  void forward(int rank, const Action& action) {
    const Work work{action.chunk, action.micro_batch, action.slice};
    const auto input = inputs(rank, action, false);
    const auto weights = weights_for(rank, action);
    if (!input || !weights) return fail("a forward lacks its input or weights");
    if (output_.count(work) > 0) return fail("a forward runs twice");
    const auto before = output_.find({action.chunk, action.micro_batch, action.slice - 1});
    if (action.slice > 0 && before == output_.end()) return fail("a slice lacks the one before");
    output_[work] = hash({1, *input, *weights, static_cast<std::uint64_t>(action.micro_batch * 100 + action.slice), action.slice > 0 ? before->second : 0});
    used_[work] = action.version;
    most_live_[rank] = std::max(most_live_[rank], ++live_[rank]);
    hand_over(rank, action, false, output_[work]);
    advance(rank);
  }

  void backward(int rank, const Action& action) {
    const Work work{action.chunk, action.micro_batch, action.slice};
    if (output_.count(work) == 0) return fail("a backward comes before its forward");
    if (input_gradient_.count(work) > 0) return fail("a backward runs twice");
    const auto gradient = inputs(rank, action, true);
    const auto weights = weights_for(rank, action);
    if (!gradient || !weights) return fail("a backward lacks its gradient or weights");
    if (used_[work] != action.version) return fail("a backward reads other weights than its forward");
    const auto after = input_gradient_.find({action.chunk, action.micro_batch, action.slice + 1});
    if (action.slice + 1 < schedule_.slices && after == input_gradient_.end()) return fail("a slice lacks the one after");
    input_gradient_[work] = hash({2, *gradient, output_[work], *weights, action.slice + 1 < schedule_.slices ? after->second : 0});
    hand_over(rank, action, true, input_gradient_[work]);
    if (action.kind == ActionKind::Backward) add_gradient(rank, work);
    advance(rank);
  }
  void weight(int rank, const Action& action) {
    const Work work{action.chunk, action.micro_batch, action.slice};
    if (input_gradient_.count(work) == 0) return fail("a weight part comes before its input part");
    add_gradient(rank, work);
    advance(rank);
  }
  void add_gradient(int rank, const Work& work) {
    if (!added_.insert(work).second) return fail("a gradient is added twice");
    gradients_[{rank, std::get<0>(work)}] += hash({3, input_gradient_[work], output_[work]});
    --live_[rank];
  }

  void send(int rank, const Action& action) {
    const bool gradient = action.kind == ActionKind::SendGradient;
    const auto& made = gradient ? input_gradient_ : output_;
    const auto value = made.find({action.chunk, action.micro_batch, action.slice});
    if (value == made.end()) return fail("sends what was not made");
    const int other = schedule_.rank_of(action.peer, action.micro_batch);
    auto& box = mail_[{rank, other}];
    if (capacity_ == 0) {  // the receiver must stand at a receive from here
      const auto o = static_cast<std::size_t>(other);
      if (next_[o] >= lists_[o].size()) return;
      const Action& theirs = lists_[o][next_[o]];
      if (!is_receive(theirs.kind) || schedule_.rank_of(theirs.peer, theirs.micro_batch) != rank) return;
    } else if (box.size() >= capacity_) {
      return;
    }
    box.push_back(value->second);
    advance(rank);
    if (capacity_ == 0) receive(other, lists_[static_cast<std::size_t>(other)][next_[static_cast<std::size_t>(other)]]);
  }
  void receive(int rank, const Action& action) {
    auto& box = mail_[{schedule_.rank_of(action.peer, action.micro_batch), rank}];
    if (box.empty()) return;
    const bool gradient = action.kind == ActionKind::ReceiveGradient;
    if (!arrived_.emplace(std::tuple{rank, action.chunk, action.micro_batch, action.slice, action.peer, gradient}, box.front()).second) return fail("receives twice");
    box.pop_front();
    advance(rank);
  }

  void reduce(int rank, const Action& action) {
    const auto& ranks = schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)];
    for (const int other : ranks) {
      const auto o = static_cast<std::size_t>(other);
      if (next_[o] >= lists_[o].size() || lists_[o][next_[o]].kind != ActionKind::Reduce || lists_[o][next_[o]].chunk != action.chunk) return;
    }
    static_cast<void>(rank);
    std::uint64_t sum = 0;
    for (const int other : ranks) sum += gradients_[{other, action.chunk}];
    for (const int other : ranks) {
      gradients_[{other, action.chunk}] = sum;
      advance(other);
    }
  }

  void optimize(int rank, const Action& action) {
    auto& versions = weights_[{rank, action.chunk}];
    const auto source = versions.find(action.version);
    if (source == versions.end()) return fail("steps from a version that is not there");
    if (versions.count(action.version + 1) > 0) return fail("writes a version that is there");
    versions[action.version + 1] = hash({4, source->second, gradients_[{rank, action.chunk}]});
    gradients_[{rank, action.chunk}] = 0;
    advance(rank);
    const auto& list = lists_[static_cast<std::size_t>(rank)];
    const std::size_t at = next_[static_cast<std::size_t>(rank)];
    const bool in_place = at < list.size() && list[at].kind == ActionKind::Drop && list[at].chunk == action.chunk && list[at].version == action.version;
    auto& most = most_versions_[action.chunk];
    most = std::max(most, versions.size() - (in_place ? 1 : 0));
  }

  const Schedule& schedule_;
  ActionLists lists_;
  std::size_t capacity_;
  std::vector<std::size_t> next_;
  std::map<std::pair<int, int>, std::map<int, std::uint64_t>> weights_;  ///< by rank and chunk, version
  std::map<std::pair<int, int>, std::uint64_t> gradients_, predicted_;   ///< by rank and chunk; by chunk and micro-batch
  std::map<std::pair<int, int>, std::deque<std::uint64_t>> mail_;
  std::map<std::tuple<int, int, int, int, int, bool>, std::uint64_t> arrived_;
  std::map<Work, std::uint64_t> output_, input_gradient_;
  std::map<Work, int> used_;
  std::set<Work> added_;
  std::map<int, int> live_, most_live_;
  std::map<int, std::size_t> most_versions_;
  std::string wrong_;
};

}  // namespace pipedream
