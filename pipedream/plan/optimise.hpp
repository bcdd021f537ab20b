#pragma once

#include <functional>
#include <optional>

#include "pipedream/plan/search.hpp"

namespace pipedream {

/// Best plan of one search space.
struct Optimum {
  std::optional<Found> found;
  double period_ms = std::numeric_limits<double>::infinity();
  double bound_ms = 0;     ///< no plan of the space is faster
  bool certified = false;  ///< everything faster was shown to be infeasible
};

/// Finds the best plan of a space by trying thresholds: starts at a lower bound, grows until a plan is found, then halves the interval until the
/// value just below the best plan is infeasible, which is the certificate. Among equal plans fewer stages win, then less traffic.
/// Schedules that flush minimise largest load + sum of fills: after the smallest feasible load, larger ones with smaller fills are swept.
/// @param better_than plans that are not faster than this are of no interest: one infeasible threshold settles the space
[[nodiscard]] Optimum optimise(const SearchSpace& space, double better_than_ms, SearchBudget& budget);

}  // namespace pipedream
