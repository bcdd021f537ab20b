#include <algorithm>

#include "pipedream/schedule/zero_bubble_search.hpp"

namespace pipedream {
namespace {

/// One stage while the schedule is being built.
struct Stage {
  std::vector<Action> list;
  std::vector<double> forward_end, input_end;
  double clock = 0, first_start = -1, idle = 0;
  int forwards = 0, inputs = 0, weights = 0;
};

/// Schedules action by action on clocks of all stages, keeping the memory limit.
class Heuristic {
 public:
  Heuristic(std::vector<StageTimes> times, double transfer, int micro_batches, Memory memory, Choices choices)
      : times_(std::move(times)), transfer_(transfer), micro_batches_(micro_batches), memory_(memory), choices_(choices), stages_(times_.size()) {
    for (Stage& stage : stages_) {
      stage.forward_end.assign(static_cast<std::size_t>(micro_batches), 0);
      stage.input_end.assign(static_cast<std::size_t>(micro_batches), 0);
    }
  }

  /// Nothing if the memory limit cannot be kept this way.
  std::optional<ActionLists> run() {
    warm_up();
    for (int i = 1; i < micro_batches_; ++i) {
      run_forwards(i);
      if (stages_.empty() || !run_inputs(i)) return {};
    }
    ActionLists lists;
    for (std::size_t j = 0; j < stages_.size(); ++j) {
      while (stages_[j].weights < micro_batches_) put(j, ActionKind::BackwardWeight);
      if (stages_[j].forwards < micro_batches_) return {};
      lists.push_back(stages_[j].list);
    }
    return lists;
  }

 private:
  [[nodiscard]] int count() const { return static_cast<int>(stages_.size()); }
  [[nodiscard]] Stage& at(int j) { return stages_[static_cast<std::size_t>(j)]; }
  [[nodiscard]] const StageTimes& times(int j) const { return times_[static_cast<std::size_t>(j)]; }

  [[nodiscard]] double input_arrival(int j, int micro_batch) const {  // of the forward's input
    return j == 0 ? 0 : stages_[static_cast<std::size_t>(j - 1)].forward_end[static_cast<std::size_t>(micro_batch)] + transfer_;
  }
  [[nodiscard]] double gradient_arrival(int j, int micro_batch) const {
    const Stage& stage = stages_[static_cast<std::size_t>(j)];
    if (j + 1 == count()) return stage.forward_end[static_cast<std::size_t>(micro_batch)];
    return stages_[static_cast<std::size_t>(j + 1)].input_end[static_cast<std::size_t>(micro_batch)] + transfer_;
  }

  [[nodiscard]] bool has_room(int j) const {
    const Stage& stage = stages_[static_cast<std::size_t>(j)];
    return memory_.has_room(stage.forwards, stage.inputs, stage.weights);
  }

  void put(std::size_t index, ActionKind kind) {
    const int j = static_cast<int>(index);
    Stage& stage = stages_[index];
    double start = stage.clock;
    int micro_batch = stage.weights;
    if (kind == ActionKind::Forward) start = std::max(start, input_arrival(j, micro_batch = stage.forwards));
    if (kind == ActionKind::BackwardInput) start = std::max(start, gradient_arrival(j, micro_batch = stage.inputs));
    if (stage.first_start >= 0) stage.idle += start - stage.clock;
    else stage.first_start = start;
    const StageTimes& cost = times_[index];
    stage.clock = start + (kind == ActionKind::Forward ? cost.forward : kind == ActionKind::BackwardInput ? cost.input : cost.weight);
    if (kind == ActionKind::Forward) stage.forward_end[static_cast<std::size_t>(stage.forwards++)] = stage.clock;
    else if (kind == ActionKind::BackwardInput) stage.input_end[static_cast<std::size_t>(stage.inputs++)] = stage.clock;
    else ++stage.weights;
    stage.list.push_back({kind, j, micro_batch});
  }
  void put(int j, ActionKind kind) { put(static_cast<std::size_t>(j), kind); }

  void warm_up() {
    const int p = count();
    for (int j = 0; j < p; ++j) put(j, ActionKind::Forward);
    // How many further forwards fit before the first gradient, from the last stage up.
    std::vector<int> extra(static_cast<std::size_t>(p), 0);
    double gradient = at(p - 1).clock + times(p - 1).input;
    for (int j = p - 2; j >= 0; --j) {
      const double arrival = gradient + transfer_;
      double clock = at(j).clock;
      int& n = extra[static_cast<std::size_t>(j)];
      while (n + 1 < std::min(micro_batches_, memory_.warm_up())) {
        if (choices_.careful_warm_up ? clock + times(j).forward > arrival + kTiny : clock + kTiny >= arrival) break;
        clock += times(j).forward;
        ++n;
      }
      gradient = std::max(arrival, clock) + times(j).input;
    }
    for (int j = 1; j < p; ++j)
      extra[static_cast<std::size_t>(j)] = std::min(extra[static_cast<std::size_t>(j)], std::max(0, extra[static_cast<std::size_t>(j - 1)] - 1));
    for (int j = 0; j < p; ++j)
      for (int n = 0; n < extra[static_cast<std::size_t>(j)]; ++n) put(j, ActionKind::Forward);
    for (int j = p - 1; j >= 0; --j) put(j, ActionKind::BackwardInput);
  }

  [[nodiscard]] double slack(int j) const {  // idle time that costs nothing, because another stage has had it
    double most = 0;
    for (const Stage& stage : stages_) most = std::max(most, stage.idle);
    return most - stages_[static_cast<std::size_t>(j)].idle;
  }

  [[nodiscard]] bool can_free(int j) const { return stages_[static_cast<std::size_t>(j)].inputs > stages_[static_cast<std::size_t>(j)].weights; }

  // Weight parts that fit before `until`, and one more where the gap left is worse than what a weight part would delay.
  void fill(int j, double until) {
    while (can_free(j) && at(j).clock + times(j).weight <= until + kTiny) put(j, ActionKind::BackwardWeight);
    const double gap = until - at(j).clock;
    if (can_free(j) && gap > kTiny && (gap > slack(j) + kTiny || choices_.fill_greedily)) put(j, ActionKind::BackwardWeight);
  }

  [[nodiscard]] bool wants_forward(int j) {
    Stage& stage = at(j);
    if (stage.forwards >= micro_batches_) return false;
    if (j + 1 == count() || !choices_.prefer_backward) return true;
    Stage& next = at(j + 1);
    if (stage.forwards < next.forwards + 2) return true;
    const double due = next.clock + times(j + 1).forward + times(j + 1).input + transfer_;
    if (stage.clock >= due - kTiny) return false;
    double end = std::max(stage.clock, input_arrival(j, stage.forwards)) + times(j).forward;
    if (!has_room(j)) end += times(j).weight;
    return end <= due + kTiny || due - stage.clock > slack(j) + kTiny;
  }

  void run_forwards(int round) {
    static_cast<void>(round);
    std::vector<char> runs(stages_.size(), 0);
    for (int j = count() - 1; j >= 0; --j) {
      const bool successor = j + 1 == count() || runs[static_cast<std::size_t>(j + 1)] != 0 || at(j + 1).forwards >= micro_batches_ ||
                             at(j).forwards <= at(j + 1).forwards;
      runs[static_cast<std::size_t>(j)] = successor && wants_forward(j) ? 1 : 0;
      if (j + 1 < count() && at(j).forwards <= at(j + 1).forwards && at(j).forwards < micro_batches_)
        runs[static_cast<std::size_t>(j)] = 1;  // the next one has nothing to run
    }
    for (int j = 0; j < count(); ++j) {
      if (!runs[static_cast<std::size_t>(j)]) continue;
      if (j > 0 && at(j - 1).forwards <= at(j).forwards) continue;  // its input is not there
      while (!has_room(j) && can_free(j)) put(j, ActionKind::BackwardWeight);
      if (!has_room(j)) continue;
      fill(j, input_arrival(j, at(j).forwards));
      put(j, ActionKind::Forward);
    }
  }

  bool run_inputs(int i) {
    for (int j = count() - 1; j >= 0; --j) {
      while (at(j).forwards <= i) {  // its forward was held back until now
        if (j > 0 && at(j - 1).forwards <= at(j).forwards) return false;
        while (!has_room(j) && can_free(j)) put(j, ActionKind::BackwardWeight);
        if (!has_room(j)) return false;
        put(j, ActionKind::Forward);
      }
      fill(j, gradient_arrival(j, i));
      put(j, ActionKind::BackwardInput);
      if (j == 0 && at(0).forwards >= micro_batches_)
        while (can_free(0)) put(0, ActionKind::BackwardWeight);
    }
    return true;
  }

  std::vector<StageTimes> times_;
  double transfer_;
  int micro_batches_;
  Memory memory_;
  Choices choices_;
  std::vector<Stage> stages_;
};

}  // namespace

std::optional<ActionLists> zero_bubble_heuristic(const OrderProblem& problem, Choices choices) {
  return Heuristic(problem.times, problem.transfer, problem.micro_batches, problem.memory, choices).run();
}

}  // namespace pipedream
