#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/zero_bubble.hpp"
#include "pipedream/schedule/zero_bubble_search.hpp"

namespace pipedream {
namespace {

struct Evaluation {
  double longest_span = 0, makespan = 0;
  bool operator<(const Evaluation& other) const {
    if (std::abs(longest_span - other.longest_span) > kTiny) return longest_span < other.longest_span;
    return makespan < other.makespan - kTiny;
  }
};

// Times a candidate. Lists go forward as far as their inputs are known; a few sweeps suffice.
Evaluation evaluate(const ActionLists& lists, const std::vector<StageTimes>& times, double transfer, int micro_batches) {
  const std::size_t p = lists.size();
  std::vector<std::vector<double>> forward(p, std::vector<double>(static_cast<std::size_t>(micro_batches), -1)), input = forward;
  std::vector<std::size_t> next(p, 0);
  std::vector<double> clock(p, 0), first(p, -1);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t j = 0; j < p; ++j)
      for (; next[j] < lists[j].size(); ++next[j], moved = true) {
        const Action& action = lists[j][next[j]];
        const auto i = static_cast<std::size_t>(action.micro_batch);
        double start = clock[j];
        if (action.kind == ActionKind::Forward && j > 0) {
          if (forward[j - 1][i] < 0) break;
          start = std::max(start, forward[j - 1][i] + transfer);
        } else if (action.kind == ActionKind::BackwardInput && j + 1 < p) {
          if (input[j + 1][i] < 0) break;
          start = std::max(start, input[j + 1][i] + transfer);
        }
        if (first[j] < 0) first[j] = start;
        clock[j] = start + (action.kind == ActionKind::Forward         ? times[j].forward
                            : action.kind == ActionKind::BackwardInput ? times[j].input
                                                                       : times[j].weight);
        if (action.kind == ActionKind::Forward) forward[j][i] = clock[j];
        if (action.kind == ActionKind::BackwardInput) input[j][i] = clock[j];
      }
  }
  Evaluation result;
  for (std::size_t j = 0; j < p; ++j) {
    if (next[j] < lists[j].size()) return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
    result.longest_span = std::max(result.longest_span, clock[j] - first[j]);
    result.makespan = std::max(result.makespan, clock[j]);
  }
  return result;
}

bool within(const ActionLists& lists, const Memory& memory) {
  for (const auto& list : lists) {
    int forwards = 0, inputs = 0, weights = 0;
    for (const Action& action : list) {
      if (action.kind == ActionKind::Forward && !memory.has_room(forwards++, inputs, weights)) return false;
      if (action.kind == ActionKind::BackwardInput) ++inputs;
      if (action.kind == ActionKind::BackwardWeight) ++weights;
    }
  }
  return true;
}

// Warm-up, then an input part and a forward in turn, then the remaining input parts.
Order order_after_warm_up(const std::vector<int>& warm_up, int micro_batches, double tolerance) {
  Order order{{}, tolerance};
  for (int chunk = 0; chunk < static_cast<int>(warm_up.size()); ++chunk) {
    int forwards = std::min(warm_up[static_cast<std::size_t>(chunk)], micro_batches);
    order.turns.emplace_back(static_cast<std::size_t>(forwards), Turn{chunk, true});
    for (int i = 0; i < micro_batches; ++i) {
      order.turns.back().push_back({chunk, false});
      if (forwards++ < micro_batches) order.turns.back().push_back({chunk, true});
    }
  }
  return order;
}

// Orders by deadlines with more and more slack, and warm-ups that fall evenly along the pipe.
void add_starts(const OrderProblem& problem, OrderSearch& search) {
  const double round = problem.times.front().forward + problem.times.front().input + problem.times.front().weight;
  for (int k = -8; k <= 24; ++k)
    if (auto order = order_by_deadlines(problem, round * k / 8))
      for (const double tolerance : {0.0, 0.5, 0.99}) search.consider({order->turns, tolerance});
  const int most = std::min(problem.memory.warm_up(), problem.micro_batches);
  for (int first = most; first >= std::max(1, most / 2); --first)
    for (double slope = 1; slope <= 2.51; slope += 0.25)
      for (const double tolerance : {0.0, 0.5, 0.99}) {
        std::vector<int> warm_up;
        for (int j = 0; j < problem.positions; ++j) warm_up.push_back(std::max(1, static_cast<int>(std::lround(first - slope * j))));
        search.consider(order_after_warm_up(warm_up, problem.micro_batches, tolerance));
      }
}

ActionLists search(const Pipes& pipes, int micro_batches, const ScheduleRequest& request) {
  const OrderProblem problem = order_problem(request, Placement::Chain, pipes.positions, pipes.chunks, micro_batches,
                                             request.memory_limit > 0 ? request.memory_limit : pipes.positions);
  std::optional<ActionLists> best;
  Evaluation best_value;
  const auto consider = [&](std::optional<ActionLists> lists) {
    if (!lists || !within(*lists, problem.memory)) return;
    const Evaluation value = evaluate(*lists, problem.times, problem.transfer, micro_batches);
    if (std::isfinite(value.longest_span) && (!best || value < best_value)) {
      best = std::move(lists);
      best_value = value;
    }
  };
  for (int bits = 0; bits < 8; ++bits) consider(zero_bubble_heuristic(problem, {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0}));
  OrderSearch orders(problem);
  add_starts(problem, orders);
  orders.improve();
  if (orders.found()) consider(orders.lists());
  consider(zero_bubble_h1_lists(pipes, micro_batches));
  consider(zero_bubble_h2_lists(pipes, micro_batches));
  if (!best)
    throw InfeasibleError(fmt::format("zb-auto found no order that keeps at most {} activations per rank", problem.memory.limit),
                          "raise --memory-limit");
  return *best;
}

}  // namespace

Schedule generate_zero_bubble_auto(const ScheduleRequest& request) {
  return flushing_pipes(request, Placement::Chain, [&](const Pipes& pipes, int micro_batches) { return search(pipes, micro_batches, request); });
}

}  // namespace pipedream
