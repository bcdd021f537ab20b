#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "pipedream/plan/cost_model.hpp"
#include "pipedream/plan/cut_family.hpp"
#include "pipedream/plan/device_layout.hpp"

namespace pipedream {

/// Everything a search needs to know; nothing of it changes while it runs.
struct SearchSpace {
  const CutFamily* cuts = nullptr;
  const DeviceLayout* layout = nullptr;
  const CostModel* cost = nullptr;
  const InFlightModel* in_flight = nullptr;
  bool may_recompute = false, must_recompute = false;
  bool fewer_devices = false;
  int max_stages = 0;     ///< 0: no limit
  int exact_stages = 0;   ///< 0: any number
  std::vector<int> shape;  ///< replicas of each of `exact_stages` stages; empty: any
  bool any_plan = false;  ///< the first plan found will do: no comparison of fills, stages and traffic
};

struct FoundStage {
  int low = 0, high = 0;  ///< cuts
  Take take;
  int label = 0;  ///< before the take
  bool recompute = false;
};

struct Found {
  std::vector<FoundStage> stages;  ///< first stage first
  double largest_load_ms = 0;
  double fill_ms = 0;
  double traffic_bytes = 0;
};

/// Counts the work of searches and stops them: a search that ran out gives nothing, and says so here.
struct SearchBudget {
  std::int64_t states = 0;  ///< stages looked at so far
  std::int64_t most_states = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] bool exhausted() const { return states > most_states; }
};

/// Among the plans whose loads are all at most `threshold_ms` the one with the least sum of fills, then the fewest stages, then the least traffic.
/// Dynamic programming over (cut, label) from the last stage to the first; exact over the family and the layout.
[[nodiscard]] std::optional<Found> search_labels(const SearchSpace& space, double threshold_ms, SearchBudget& budget);

/// Uniform devices, no fill: whether some plan keeps the threshold with at most the devices there are, and one that does. Only the smallest number of
/// replicas that suits matters then, and per cut only the fewest devices of all later stages: one number per cut instead of one per label.
[[nodiscard]] std::optional<Found> search_fewest_devices(const SearchSpace& space, double threshold_ms, SearchBudget& budget);

/// Loads of a plan that keeps the threshold are at most this.
inline double just_below(double value) { return std::nextafter(value, -std::numeric_limits<double>::infinity()); }

}  // namespace pipedream
