#include <fmt/format.h>

#include <algorithm>

#include "pipedream/schedule/validation.hpp"

namespace pipedream {
namespace {

using Bits = std::uint8_t;
constexpr Bits kForward = 1, kRecompute = 2, kBackward = 4, kInput = 8, kWeight = 16, kReceivedActivation = 32, kReceivedGradient = 64, kPredicted = 128,
               kGradient = kBackward | kInput;

Bits bit_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return kForward;
    case ActionKind::Recompute:
      return kRecompute;
    case ActionKind::Backward:
      return kBackward;
    case ActionKind::BackwardInput:
      return kInput;
    case ActionKind::BackwardWeight:
      return kWeight;
    case ActionKind::Predict:
      return kPredicted;
    default:
      return 0;
  }
}

std::string work_text(int chunk, int micro_batch, int slice, int slices) {
  return slices > 1 ? fmt::format("slice {} of micro-batch {} on chunk {}", slice, micro_batch, chunk)
                    : fmt::format("micro-batch {} on chunk {}", micro_batch, chunk);
}

}  // namespace

Finding check_placement(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      const auto fail = [&](std::string what) {
        return Finding(checked.violation(RuleGroup::Placement, rank, static_cast<int>(i), std::move(what)));
      };
      if (action.chunk < 0 || action.chunk >= schedule.num_chunks())
        return fail(fmt::format("{}: chunks are 0 to {}", to_string(action), schedule.num_chunks() - 1));
      if (action.micro_batch < 0 || action.micro_batch >= schedule.micro_batches)
        return fail(fmt::format("{}: micro-batches are 0 to {}", to_string(action), schedule.micro_batches - 1));
      if (action.slice < 0 || action.slice >= schedule.slices)
        return fail(fmt::format("{}: slices are 0 to {}", to_string(action), schedule.slices - 1));
      const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(action.chunk)];
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
        return fail(fmt::format("{}: rank {} does not hold chunk {}", to_string(action), rank, action.chunk));
      const bool of_replica = action.kind <= ActionKind::BackwardWeight || action.kind == ActionKind::Predict || is_transfer(action.kind);
      if (of_replica && schedule.rank_of(action.chunk, action.micro_batch) != rank)
        return fail(fmt::format("{} belongs on rank {}, the replica of micro-batch {}", to_string(action),
                                schedule.rank_of(action.chunk, action.micro_batch), action.micro_batch));
      if (action.joined && (i + 1 == list.size() || is_transfer(action.kind) != is_transfer(list[i + 1].kind)))
        return fail(fmt::format("{} is joined with nothing of its sort", to_string(action)));
      if (!is_transfer(action.kind)) continue;
      if (action.peer < 0 || action.peer >= schedule.num_chunks()) return fail(fmt::format("{} names no chunk at the other end", to_string(action)));
      const bool to_successor = action.kind == ActionKind::SendActivation || action.kind == ActionKind::ReceiveGradient;
      const auto& ends = (to_successor ? checked.graph.successors : checked.graph.predecessors)[static_cast<std::size_t>(action.chunk)];
      if (!std::binary_search(ends.begin(), ends.end(), action.peer))
        return fail(fmt::format("{}: no data flows between chunks {} and {} that way", to_string(action), action.chunk, action.peer));
      if (schedule.rank_of(action.peer, action.micro_batch) == rank)
        return fail(fmt::format("{}: chunk {} is on the same rank", to_string(action), action.peer));
    }
  }
  return {};
}

Finding check_completeness(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  std::vector<Bits> done(checked.index.size, 0);
  std::vector<char> recomputes(static_cast<std::size_t>(schedule.num_chunks()), 0);
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    std::vector<int> steps(static_cast<std::size_t>(schedule.num_chunks()), 0), reductions = steps, waits = steps;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      const auto fail = [&](const char* what) {
        return Finding(checked.violation(RuleGroup::Completeness, rank, static_cast<int>(i), fmt::format("{} {}", to_string(action), what)));
      };
      const auto chunk = static_cast<std::size_t>(action.chunk);
      const int period = micro_batches_per_step(schedule, action.chunk);
      const auto last_of = [&](int step) { return std::min((step + 1) * period, schedule.micro_batches) - 1; };
      for (const auto& [kind, count] : {std::pair{ActionKind::Step, &steps}, {ActionKind::Reduce, &reductions}, {ActionKind::Wait, &waits}}) {
        if (action.kind != kind) continue;
        int& made = (*count)[chunk];
        if (kind == ActionKind::Wait) made = std::max(made, action.micro_batch / period);  // waits are optional
        if (made >= num_steps(schedule, action.chunk) || action.micro_batch != last_of(made))
          return fail("is not the next of its chunk: there is one per mini-batch, in order, named by its last micro-batch");
        ++made;
      }
      const Bits bit = bit_of(action.kind);
      if (bit == 0) continue;
      Bits& bits = done[checked.index(action.chunk, action.micro_batch, action.slice)];
      if ((bits & bit) != 0 || ((bits & kBackward) != 0 && (bit & (kInput | kWeight)) != 0) || (bit == kBackward && (bits & (kInput | kWeight)) != 0))
        return fail("is there twice");
      bits |= bit;
      if (bit == kRecompute) recomputes[chunk] = 1;
    }
    for (const int chunk : chunks_of(schedule, rank)) {
      const auto c = static_cast<std::size_t>(chunk);
      const int expected = num_steps(schedule, chunk);
      const auto fail = [&](const std::string& what) {
        return Finding(checked.violation(RuleGroup::Completeness, rank, static_cast<int>(list.size()), what));
      };
      if (steps[c] != expected) return fail(fmt::format("rank {} makes {} of {} steps of chunk {}", rank, steps[c], expected, chunk));
      if (checked.has_reductions && schedule.chunk_ranks[c].size() > 1 && reductions[c] != expected)
        return fail(fmt::format("rank {} joins {} of {} reductions of chunk {}", rank, reductions[c], expected, chunk));
    }
  }
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk)
    for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch)
      for (int slice = 0; slice < schedule.slices; ++slice) {
        const Bits bits = done[checked.index(chunk, micro_batch, slice)];
        const int rank = schedule.rank_of(chunk, micro_batch);
        const auto fail = [&](const char* what) {
          return Finding(checked.violation(RuleGroup::Completeness, rank, static_cast<int>(checked.lists[static_cast<std::size_t>(rank)].size()),
                                           fmt::format("{} of {} is missing", what, work_text(chunk, micro_batch, slice, schedule.slices))));
        };
        if ((bits & kForward) == 0) return fail("the forward");
        if ((bits & kGradient) == 0) return fail("the backward");
        if ((bits & kInput) != 0 && (bits & kWeight) == 0) return fail("the weight part of the backward");
        if (recomputes[static_cast<std::size_t>(chunk)] && (bits & kRecompute) == 0) return fail("the recomputation");
      }
  return {};
}

namespace {

/// Goes along one rank's list and knows what has been done on it.
class LocalOrder {
 public:
  LocalOrder(const Checked& checked, int rank, std::vector<Bits>& done)
      : checked_(checked),
        schedule_(checked.schedule),
        rank_(rank),
        done_(done),
        steps_(static_cast<std::size_t>(schedule_.num_chunks()), 0),
        reductions_(steps_) {}

  /// What is wrong with this action here; empty if nothing.
  std::pair<RuleGroup, std::string> next(const Action& action, bool recomputes) {
    const std::string wrong = missing(action, recomputes);
    if (!wrong.empty()) return {RuleGroup::LocalOrder, wrong};
    const std::string late = wrong_period(action);
    if (!late.empty()) return {RuleGroup::Accumulation, late};
    mark(action);
    return {};
  }

 private:
  [[nodiscard]] Bits bits(int chunk, const Action& action, int slice) const { return done_[checked_.index(chunk, action.micro_batch, slice)]; }

  [[nodiscard]] std::string missing(const Action& action, bool recomputes) const {
    const Bits own = bits(action.chunk, action, action.slice);
    const auto c = static_cast<std::size_t>(action.chunk);
    switch (action.kind) {
      case ActionKind::Forward:
        if (action.slice > 0 && (bits(action.chunk, action, action.slice - 1) & kForward) == 0)
          return "comes before the forward of the slice before it";
        return missing_input(action, checked_.graph.predecessors[c], kForward, kReceivedActivation, "its input");
      case ActionKind::Recompute:
        return (own & kForward) == 0 ? "comes before its forward" : (own & kGradient) != 0 ? "comes after its backward" : "";
      case ActionKind::Backward:
      case ActionKind::BackwardInput:
        if ((own & kForward) == 0) return "comes before its forward";
        if (recomputes && (own & kRecompute) == 0) return "comes before its recomputation";
        if (action.slice + 1 < schedule_.slices && (bits(action.chunk, action, action.slice + 1) & kGradient) == 0)
          return "comes before the backward of the slice after it";
        return missing_input(action, checked_.graph.successors[c], kGradient, kReceivedGradient, "the gradient");
      case ActionKind::BackwardWeight:
        return (own & kInput) == 0 ? "comes before its input part" : "";
      case ActionKind::Predict:
        return (own & kForward) != 0 ? "comes after the forward it predicts for" : "";
      case ActionKind::SendActivation:
        return (own & kForward) == 0 ? "comes before the forward that makes it" : "";
      case ActionKind::SendGradient:
        return (own & kGradient) == 0 ? "comes before the backward that makes it" : "";
      case ActionKind::ReceiveActivation:
        return (own & kForward) != 0 ? "comes after the forward that needs it" : "";
      case ActionKind::ReceiveGradient:
        return (own & kGradient) != 0 ? "comes after the backward that needs it" : "";
      default:
        return {};
    }
  }

  // An input comes from a chunk on this rank that has run, or by a receive. Receives of several edges into one chunk are counted by the
  // matching check; here one is enough, because all of them must come before the use.
  [[nodiscard]] std::string missing_input(const Action& action, const std::vector<int>& sources, Bits made, Bits received, const char* what) const {
    for (const int source : sources) {
      if (schedule_.rank_of(source, action.micro_batch) == rank_) {
        if ((bits(source, action, action.slice) & made) == 0) return fmt::format("comes before {} from chunk {} on the same rank", what, source);
      } else if (checked_.has_transfers && (bits(action.chunk, action, action.slice) & received) == 0) {
        return fmt::format("comes before {} from chunk {} is received", what, source);
      }
    }
    return {};
  }

  [[nodiscard]] std::string wrong_period(const Action& action) const {
    const auto c = static_cast<std::size_t>(action.chunk);
    const int period = micro_batches_per_step(schedule_, action.chunk);
    if (is_backward(action.kind)) {
      if (action.micro_batch / period < steps_[c]) return "comes after the step that takes its gradient";
      if (action.micro_batch / period > steps_[c]) return "adds its gradient to a step before its own";
      if (action.micro_batch / period < reductions_[c]) return "comes after the reduction that takes its gradient";
    }
    if (action.kind == ActionKind::Step || action.kind == ActionKind::Reduce) {
      for (int micro_batch = steps_[c] * period; micro_batch <= action.micro_batch; ++micro_batch) {
        if (schedule_.rank_of(action.chunk, micro_batch) != rank_) continue;
        for (int slice = 0; slice < schedule_.slices; ++slice) {
          const Bits own = done_[checked_.index(action.chunk, micro_batch, slice)];
          if ((own & (kBackward | kWeight)) == 0) return fmt::format("comes before the backward of micro-batch {}", micro_batch);
        }
      }
    }
    const bool replicated = schedule_.chunk_ranks[c].size() > 1 && checked_.has_reductions;
    if (action.kind == ActionKind::Step && replicated && reductions_[c] != steps_[c] + 1) return "comes before its reduction";
    if (action.kind == ActionKind::Reduce && reductions_[c] != steps_[c]) return "comes before the step of the reduction before it";
    if (action.kind == ActionKind::Wait && reductions_[c] != steps_[c] + 1) return "waits for a reduction that is not under way";
    return {};
  }

  void mark(const Action& action) {
    const auto c = static_cast<std::size_t>(action.chunk);
    Bits& own = done_[checked_.index(action.chunk, action.micro_batch, action.slice)];
    own |= bit_of(action.kind);
    if (action.kind == ActionKind::ReceiveActivation) own |= kReceivedActivation;
    if (action.kind == ActionKind::ReceiveGradient) own |= kReceivedGradient;
    if (action.kind == ActionKind::Step) ++steps_[c];
    if (action.kind == ActionKind::Reduce) ++reductions_[c];
  }

  const Checked& checked_;
  const Schedule& schedule_;
  int rank_;
  std::vector<Bits>& done_;
  std::vector<int> steps_, reductions_;
};

}  // namespace

Finding check_local_order(const Checked& checked) {
  std::vector<Bits> done(checked.index.size, 0);
  std::vector<char> recomputes(static_cast<std::size_t>(checked.schedule.num_chunks()), 0);
  for (const auto& list : checked.lists)
    for (const Action& action : list)
      if (action.kind == ActionKind::Recompute) recomputes[static_cast<std::size_t>(action.chunk)] = 1;
  for (int rank = 0; rank < checked.schedule.num_ranks(); ++rank) {
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    LocalOrder order(checked, rank, done);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto [group, wrong] = order.next(list[i], recomputes[static_cast<std::size_t>(list[i].chunk)] != 0);
      if (!wrong.empty()) return checked.violation(group, rank, static_cast<int>(i), fmt::format("{} {}", to_string(list[i]), wrong));
    }
  }
  return {};
}

}  // namespace pipedream
