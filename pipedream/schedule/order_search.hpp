#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "pipedream/schedule/generate.hpp"

/// Search for schedules with split backwards: what zb-auto, zb-v and the V schedules with less memory share.
namespace pipedream {

constexpr double kTiny = 1e-9;  ///< times closer than that are equal

struct StageTimes {
  double forward = 1, input = 1, weight = 1;
};

/// What a stage may hold, in activations. An input part lets go of all of an activation but `weight_share`.
struct Memory {
  double limit = 1, weight_share = 1;
  [[nodiscard]] bool has_room(int forwards, int inputs, int weights) const {
    return forwards + 1 - (1 - weight_share) * inputs - weight_share * weights <= limit + kTiny;
  }
  [[nodiscard]] int warm_up() const { return static_cast<int>(std::min(limit + kTiny, 1e6)); }
};

/// Chunks of one pipe, where they lie, and what they cost.
struct OrderProblem {
  int positions = 0;
  std::vector<int> position_of;   ///< per chunk
  std::vector<StageTimes> times;  ///< per chunk
  double transfer = 0;
  int micro_batches = 0;
  Memory memory;
  double effort = 0;  ///< actions that may be timed
};

/// Times of the chunks as a request gives them. @throws InfeasibleError if the limit holds nothing
[[nodiscard]] OrderProblem order_problem(const ScheduleRequest& request, Placement placement, int positions, int chunks, int micro_batches,
                                         double memory_limit);

/// A forward or an input part, of the next micro-batch of its chunk that has not had it.
struct Turn {
  int chunk = 0;
  bool forward = true;
  bool operator==(const Turn&) const = default;
};

/// In which turn forwards and input parts come, per position. Weight parts are not in it: they go where a gap lets them, delaying what follows by at
/// most a tolerance (a share of a weight part), first come first served, and where memory is full.
struct Order {
  std::vector<std::vector<Turn>> turns;
  double tolerance = 0;
};

/// Improves orders by small changes as long as they help and effort lasts. What is to be small is the longest span of a position, then all spans.
class OrderSearch {
 public:
  explicit OrderSearch(const OrderProblem& problem);

  /// Takes an order as start if it is better than all before. True if so.
  bool consider(const Order& order);
  void improve();
  [[nodiscard]] bool found() const { return value_ < 1e299; }
  /// The best order with its weight parts. Only if found.
  [[nodiscard]] ActionLists lists();

 private:
  struct State {
    double clock = 0, first = -1, held = 0;
    std::size_t turn = 0, weights = 0;         ///< weight parts done of those that wait
    std::vector<std::pair<int, int>> waiting;  ///< chunk, micro-batch
  };

  double run(const Order& order, ActionLists* lists);
  bool advance(std::size_t position, const Order& order, ActionLists* lists);
  void weight_part(std::size_t position, ActionLists* lists);
  template <typename Done>
  void climb(Done&& done);
  void wander(double start_threshold, std::int64_t steps);
  bool try_swap(std::size_t position, std::size_t at, std::size_t distance);
  [[nodiscard]] std::size_t place(int chunk, int micro_batch) const {
    return static_cast<std::size_t>(chunk) * static_cast<std::size_t>(problem_.micro_batches) + static_cast<std::size_t>(micro_batch);
  }
  [[nodiscard]] double hop(int from, int to) const {
    return problem_.position_of[static_cast<std::size_t>(from)] == problem_.position_of[static_cast<std::size_t>(to)] ? 0 : problem_.transfer;
  }

  const OrderProblem& problem_;
  std::vector<double> forward_end_, input_end_;
  std::vector<int> forwards_, inputs_;  ///< done per chunk
  std::vector<State> states_;
  Order best_;
  double value_ = 1e300;
  std::int64_t budget_ = 0;  ///< orders that may still be timed
};

/// The schedule of a request by the order search over `starts`, for schedules on a V of two chunks per rank.
[[nodiscard]] ActionLists search_from(const OrderProblem& problem, const std::vector<Order>& starts);

}  // namespace pipedream
