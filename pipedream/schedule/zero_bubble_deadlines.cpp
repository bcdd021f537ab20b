#include <algorithm>

#include "pipedream/schedule/zero_bubble_search.hpp"

namespace pipedream {
namespace {

/// Schedules by deadlines. They say when an action must end so that the first stage never waits after its first gradient: its input parts follow each
/// other without a gap, and what they need from other stages lies as much earlier as the way back takes. A weight part must be done before the
/// forward that needs its memory. A stage takes the most urgent action that is ready, unless one that is known to come sooner than that ends would be
/// late.
class DeadlineScheduler {
 public:
  DeadlineScheduler(const std::vector<StageTimes>& times, double transfer, int micro_batches, Memory memory, double slack)
      : times_(times), transfer_(transfer), micro_batches_(micro_batches), memory_(memory), stages_(times.size()) {
    const auto m = static_cast<std::size_t>(micro_batches);
    for (Stage& stage : stages_) {
      stage.forward_end.assign(m, kNever);
      stage.input_end.assign(m, kNever);
      stage.forward_due.assign(m, kNever);
      stage.input_due.assign(m, kNever);
    }
    set_deadlines(slack);
  }

  std::optional<Order> run() {
    const int p = static_cast<int>(stages_.size());
    std::vector<double> wake(stages_.size(), 0);
    while (true) {
      int next = -1;  // the stage that can decide first
      for (int j = 0; j < p; ++j)
        if (!done(j) && (next < 0 || wake[static_cast<std::size_t>(j)] < wake[static_cast<std::size_t>(next)])) next = j;
      if (next < 0) break;
      const auto n = static_cast<std::size_t>(next);
      if (wake[n] >= kNever) return {};
      const double now = wake[n];
      const auto before = taken(next);
      wake[n] = decide(next, now);
      if (taken(next) == before) continue;
      // What began gives others a time to expect something at.
      for (const int other : {next - 1, next + 1})
        if (other >= 0 && other < p)
          wake[static_cast<std::size_t>(other)] =
              std::min(wake[static_cast<std::size_t>(other)], std::max(stages_[static_cast<std::size_t>(other)].clock, now));
    }
    Order order;
    for (const Stage& stage : stages_) order.turns.push_back(stage.turns);
    return order;
  }

 private:
  static constexpr double kNever = 1e300;
  struct Stage {
    std::vector<double> forward_end, input_end, forward_due, input_due;
    std::vector<Turn> turns;
    double clock = 0;
    int forwards = 0, inputs = 0, weights = 0;
  };
  struct Option {
    double ready = kNever, due = kNever, cost = 0;
    ActionKind kind = ActionKind::Forward;
  };

  [[nodiscard]] int taken(int j) const {
    const Stage& stage = stages_[static_cast<std::size_t>(j)];
    return stage.forwards + stage.inputs + stage.weights;
  }
  [[nodiscard]] bool done(int j) const { return stages_[static_cast<std::size_t>(j)].inputs >= micro_batches_; }

  void set_deadlines(double slack) {
    const std::size_t p = stages_.size();
    double there = 0, back = 0;  // of the first micro-batch
    for (std::size_t j = 0; j < p; ++j) there += times_[j].forward + (j > 0 ? transfer_ : 0);
    for (std::size_t j = 1; j < p; ++j) back += times_[j].input + transfer_;
    double due = std::max(there + back, times_.front().forward * std::min(memory_.warm_up(), micro_batches_)) + slack;
    for (int i = 0; i < micro_batches_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      due += times_.front().input;
      double way = due;
      for (std::size_t j = 0; j < p; ++j) {
        stages_[j].input_due[at] = way;
        way -= times_[j].input + transfer_;
      }
      way = stages_[p - 1].input_due[at] - times_[p - 1].input;
      for (std::size_t j = p; j-- > 0;) {
        stages_[j].forward_due[at] = way;
        way -= times_[j].forward + transfer_;
      }
      due += times_.front().weight;
      if (i + memory_.warm_up() < micro_batches_) due += times_.front().forward;
    }
  }

  [[nodiscard]] Option forward_option(int j) const {
    const auto at = static_cast<std::size_t>(j);
    const Stage& stage = stages_[at];
    Option option{kNever, kNever, times_[at].forward, ActionKind::Forward};
    if (stage.forwards >= micro_batches_ || !memory_.has_room(stage.forwards, stage.inputs, stage.weights)) return option;
    const double made = j == 0 ? -transfer_ : stages_[at - 1].forward_end[static_cast<std::size_t>(stage.forwards)];
    if (made >= kNever) return option;
    option.ready = made + transfer_;
    option.due = stage.forward_due[static_cast<std::size_t>(stage.forwards)];
    return option;
  }
  [[nodiscard]] Option input_option(int j) const {
    const auto at = static_cast<std::size_t>(j);
    const Stage& stage = stages_[at];
    Option option{kNever, kNever, times_[at].input, ActionKind::BackwardInput};
    if (stage.inputs >= stage.forwards) return option;
    const bool last = at + 1 == stages_.size();
    const double made = last ? stage.forward_end[static_cast<std::size_t>(stage.inputs)] - transfer_
                             : stages_[at + 1].input_end[static_cast<std::size_t>(stage.inputs)];
    if (made >= kNever) return option;
    option.ready = made + transfer_;
    option.due = stage.input_due[static_cast<std::size_t>(stage.inputs)];
    return option;
  }
  [[nodiscard]] Option weight_option(int j) const {
    const auto at = static_cast<std::size_t>(j);
    const Stage& stage = stages_[at];
    Option option{kNever, kNever / 2, times_[at].weight, ActionKind::BackwardWeight};
    if (stage.weights >= stage.inputs) return option;
    option.ready = 0;
    const int needs = stage.weights + memory_.warm_up();  // the forward that takes its place in memory
    if (needs < micro_batches_) option.due = stage.forward_due[static_cast<std::size_t>(needs)] - times_[at].forward;
    return option;
  }

  /// Starts the action to take now, if any. Returns when to decide again.
  double decide(int j, double now) {
    Stage& stage = stages_[static_cast<std::size_t>(j)];
    if (now < stage.clock) return stage.clock;
    const Option options[] = {input_option(j), forward_option(j), weight_option(j)};
    const Option* best = nullptr;
    double next_known = kNever;
    for (const Option& option : options) {
      if (option.ready > now + kTiny) {
        next_known = std::min(next_known, option.ready);
        continue;
      }
      if (best == nullptr || option.due < best->due) best = would_be_late(option, options, now) ? best : &option;
    }
    if (best == nullptr) return next_known;
    start(j, *best, now);
    return stage.clock;
  }

  static bool would_be_late(const Option& option, const Option* options, double now) {
    for (int k = 0; k < 3; ++k) {
      const Option& other = options[k];
      if (&other == &option || other.ready >= kNever || other.kind == ActionKind::BackwardWeight || other.ready <= now + kTiny) continue;
      if (other.due < option.due && now + option.cost > other.ready + kTiny && now + option.cost + other.cost > other.due + kTiny) return true;
    }
    return false;
  }

  void start(int j, const Option& option, double now) {
    Stage& stage = stages_[static_cast<std::size_t>(j)];
    stage.clock = now + option.cost;
    if (option.kind == ActionKind::Forward) stage.forward_end[static_cast<std::size_t>(stage.forwards++)] = stage.clock;
    else if (option.kind == ActionKind::BackwardInput) stage.input_end[static_cast<std::size_t>(stage.inputs++)] = stage.clock;
    else ++stage.weights;
    if (option.kind != ActionKind::BackwardWeight) stage.turns.push_back({j, option.kind == ActionKind::Forward});
  }

  const std::vector<StageTimes>& times_;
  double transfer_;
  int micro_batches_;
  Memory memory_;
  std::vector<Stage> stages_;
};

}  // namespace

std::optional<Order> order_by_deadlines(const OrderProblem& problem, double slack) {
  return DeadlineScheduler(problem.times, problem.transfer, problem.micro_batches, problem.memory, slack).run();
}

}  // namespace pipedream
