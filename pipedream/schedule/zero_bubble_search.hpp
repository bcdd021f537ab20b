#pragma once

#include <optional>

#include "pipedream/schedule/order_search.hpp"

/// The two builders of orders for zb-auto, on chains with one chunk per position.
namespace pipedream {

/// The three choices of the heuristic; all eight combinations are tried.
struct Choices {
  bool careful_warm_up;  ///< a warm-up forward must end before the first gradient can be there
  bool prefer_backward;  ///< hold a forward back if it would delay the next input part
  bool fill_greedily;    ///< put a weight part into every gap
};

/// The heuristic of Zero Bubble (2401.10241, in the form of spec methods 4.7.3). Nothing if the memory limit cannot be kept this way.
[[nodiscard]] std::optional<ActionLists> zero_bubble_heuristic(const OrderProblem& problem, Choices choices);

/// Orders by deadlines, later by `slack`: see zero_bubble_deadlines.cpp. Nothing if the memory limit stops it.
[[nodiscard]] std::optional<Order> order_by_deadlines(const OrderProblem& problem, double slack);

}  // namespace pipedream
