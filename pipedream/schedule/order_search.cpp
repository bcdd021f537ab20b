#include "pipedream/schedule/order_search.hpp"

#include <fmt/format.h>

#include <limits>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
OrderProblem order_problem(const ScheduleRequest& request, Placement placement, int positions, int chunks, int micro_batches, double memory_limit) {
  OrderProblem problem;
  problem.positions = positions;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const SearchCosts& costs =
        static_cast<std::size_t>(chunk) < request.chunk_costs.size() ? request.chunk_costs[static_cast<std::size_t>(chunk)] : request.costs;
    problem.times.push_back({costs.forward, costs.backward_input, costs.backward_weight});
    problem.position_of.push_back(placement == Placement::Vee && chunk >= positions ? 2 * positions - 1 - chunk : chunk % positions);
  }
  problem.transfer = request.costs.transfer;
  problem.micro_batches = micro_batches;
  problem.memory = {memory_limit, request.weight_share};
  problem.effort = request.search_effort;
  if (problem.memory.warm_up() < 1)
    throw InfeasibleError(fmt::format("{} cannot run with less than one activation per rank: {}", request.name, memory_limit),
                          "raise --memory-limit");
  return problem;
}

OrderSearch::OrderSearch(const OrderProblem& problem) : problem_(problem) {
  const auto chunks = static_cast<std::int64_t>(problem.times.size());
  forward_end_.resize(static_cast<std::size_t>(chunks * problem.micro_batches));
  input_end_.resize(forward_end_.size());
  budget_ = static_cast<std::int64_t>(problem.effort) / std::max<std::int64_t>(1, chunks * problem.micro_batches * 3);
}

double OrderSearch::run(const Order& order, ActionLists* lists) {
  const auto p = static_cast<std::size_t>(problem_.positions);
  std::fill(forward_end_.begin(), forward_end_.end(), -1);
  std::fill(input_end_.begin(), input_end_.end(), -1);
  forwards_.assign(problem_.times.size(), 0);
  inputs_.assign(problem_.times.size(), 0);
  states_.resize(p);
  for (State& state : states_) {
    state.waiting.clear();
    state.clock = state.held = 0;
    state.first = -1;
    state.turn = state.weights = 0;
  }
  if (lists != nullptr) lists->assign(p, {});
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t position = 0; position < p; ++position)
      while (advance(position, order, lists)) moved = true;
  }
  double longest = 0, sum = 0;
  for (std::size_t position = 0; position < p; ++position) {
    State& state = states_[position];
    if (state.turn < order.turns[position].size()) return std::numeric_limits<double>::infinity();
    while (state.weights < state.waiting.size()) weight_part(position, lists);
    longest = std::max(longest, state.clock - state.first);
    sum += state.clock - state.first;
  }
  return longest + sum / static_cast<double>(p) * 1e-3;
}

void OrderSearch::weight_part(std::size_t position, ActionLists* lists) {
  State& state = states_[position];
  const auto [chunk, micro_batch] = state.waiting[state.weights++];
  if (lists != nullptr) (*lists)[position].push_back({ActionKind::BackwardWeight, chunk, micro_batch});
  state.clock += problem_.times[static_cast<std::size_t>(chunk)].weight;
  state.held -= problem_.memory.weight_share;
}

bool OrderSearch::advance(std::size_t position, const Order& order, ActionLists* lists) {
  State& state = states_[position];
  if (state.turn >= order.turns[position].size()) return false;
  const auto [chunk, forward] = order.turns[position][state.turn];
  const auto c = static_cast<std::size_t>(chunk);
  const int micro_batch = forward ? forwards_[c] : inputs_[c];
  double ready = 0;
  if (forward && chunk > 0) {
    if ((ready = forward_end_[place(chunk - 1, micro_batch)]) < 0) return false;
    ready += hop(chunk - 1, chunk);
  } else if (!forward) {
    if (micro_batch >= forwards_[c]) return false;
    const bool last = c + 1 == problem_.times.size();
    if ((ready = last ? forward_end_[place(chunk, micro_batch)] : input_end_[place(chunk + 1, micro_batch)]) < 0) return false;
    if (!last) ready += hop(chunk + 1, chunk);
  }
  while (state.weights < state.waiting.size() && state.clock < ready - kTiny) {
    const double weight = problem_.times[static_cast<std::size_t>(state.waiting[state.weights].first)].weight;
    if (state.clock + weight > ready + order.tolerance * weight + kTiny) break;
    weight_part(position, lists);
  }
  while (forward && state.held + 1 > problem_.memory.limit + kTiny) {
    if (state.weights >= state.waiting.size()) return false;
    weight_part(position, lists);
  }
  const double start = std::max(state.clock, ready);
  if (state.first < 0) state.first = start;
  state.clock = start + (forward ? problem_.times[c].forward : problem_.times[c].input);
  (forward ? forward_end_ : input_end_)[place(chunk, micro_batch)] = state.clock;
  ++(forward ? forwards_ : inputs_)[c];
  state.held += forward ? 1 : problem_.memory.weight_share - 1;
  if (!forward) state.waiting.emplace_back(chunk, micro_batch);
  if (lists != nullptr) (*lists)[position].push_back({forward ? ActionKind::Forward : ActionKind::BackwardInput, chunk, micro_batch});
  ++state.turn;
  return true;
}

bool OrderSearch::consider(const Order& order) {
  --budget_;
  const double value = run(order, nullptr);
  if (!(value < value_ - kTiny)) return false;
  value_ = value;
  best_ = order;
  return true;
}

// Exchanges two turns of a position; those in between stay.
bool OrderSearch::try_swap(std::size_t position, std::size_t at, std::size_t distance) {
  const auto& turns = best_.turns[position];
  if (at + distance >= turns.size() || turns[at] == turns[at + distance]) return false;
  Order other = best_;
  std::swap(other.turns[position][at], other.turns[position][at + distance]);
  return consider(other);
}

// Random exchanges, taken if they make the order worse by no more than a threshold that falls to nothing (threshold accepting, Dueck and Scheuer,
// 1990): improvements that need changes on several positions at once lie behind orders that are no better.
void OrderSearch::wander(double start_threshold, std::int64_t steps) {
  constexpr std::uint64_t kSeed = 0x5eed;
  Order order = best_;
  double value = value_;
  for (std::int64_t step = 0; step < steps && budget_ > 0; ++step) {
    const std::uint64_t bits = random_bits(kSeed, static_cast<std::uint64_t>(step));
    const std::size_t position = (bits >> 8U) % order.turns.size();
    auto& turns = order.turns[position];
    if (turns.size() < 3) continue;
    const std::size_t at = 1 + (bits >> 20U) % (turns.size() - 1), other = at + 1 + (bits & 3U);
    if (other >= turns.size() || turns[at] == turns[other]) continue;
    std::swap(turns[at], turns[other]);
    --budget_;
    const double changed = run(order, nullptr);
    const double threshold = start_threshold * (1 - static_cast<double>(step) / static_cast<double>(steps));
    if (changed <= value + threshold) {
      value = changed;
      if (value < value_ - kTiny) {
        value_ = value;
        best_ = order;
      }
    } else {
      std::swap(turns[at], turns[other]);
    }
  }
}

template <typename Done>
void OrderSearch::climb(Done&& done) {
  for (bool improved = true; improved && budget_ > 0 && found();) {
    improved = false;
    if (done()) return;
    for (const double tolerance : {0.0, 0.1, 0.25, 0.5, 0.75, 0.99}) improved = consider({best_.turns, tolerance}) || improved;
    for (std::size_t position = 0; position < best_.turns.size(); ++position)
      for (std::size_t at = 1; at < best_.turns[position].size() && budget_ > 0; ++at)
        for (const std::size_t distance : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{4}, std::size_t{6}})
          improved = try_swap(position, at, distance) || improved;
  }
}

void OrderSearch::improve() {
  double least = 0;  // no position can be faster than its work
  for (int position = 0; position < problem_.positions; ++position) {
    double work = 0;
    for (std::size_t chunk = 0; chunk < problem_.times.size(); ++chunk)
      if (problem_.position_of[chunk] == position)
        work += (problem_.times[chunk].forward + problem_.times[chunk].input + problem_.times[chunk].weight) * problem_.micro_batches;
    least = std::max(least, work);
  }
  const auto good_enough = [&] { return value_ <= least * (1 + 1.001e-3); };
  climb(good_enough);
  if (!found() || good_enough()) return;
  double shortest = 1e300;
  for (const StageTimes& times : problem_.times) shortest = std::min({shortest, times.forward, times.input});
  wander(shortest / 2, budget_ / 2);
  climb(good_enough);
}

ActionLists OrderSearch::lists() {
  ActionLists result;
  run(best_, &result);
  return result;
}

ActionLists search_from(const OrderProblem& problem, const std::vector<Order>& starts) {
  OrderSearch search(problem);
  for (const Order& start : starts) search.consider(start);
  if (!search.found())
    throw InfeasibleError(fmt::format("no order keeps at most {} activations per rank", problem.memory.limit), "raise --memory-limit");
  search.improve();
  return search.lists();
}

}  // namespace pipedream
