#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
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
  int max_stages = 0;      ///< 0: no limit
  int exact_stages = 0;    ///< 0: any number
  std::vector<int> shape;  ///< replicas of each of `exact_stages` stages; empty: any
  bool any_plan = false;   ///< the first plan found will do: no comparison of fills, stages and traffic
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
  std::int64_t tries = 0;  ///< ways to give devices to those stages
  std::int64_t most_tries = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] bool exhausted() const { return states > most_states || tries > most_tries; }
};

/// Among the plans whose loads are all at most `threshold_ms` the one with the least sum of fills, then the fewest stages, then the least traffic.
/// Dynamic programming over (cut, label) from the last stage to the first; exact over the family and the layout.
[[nodiscard]] std::optional<Found> search_labels(const SearchSpace& space, double threshold_ms, SearchBudget& budget);

/// No fill, no limit of stages, any plan: the same answer as search_labels, where labels have an order. Per pair of cuts and setting the labels that
/// it leads to are worked out as one set of bits.
[[nodiscard]] bool can_search_reachable(const SearchSpace& space);
[[nodiscard]] std::optional<Found> search_reachable(const SearchSpace& space, double threshold_ms, SearchBudget& budget);

/// Uniform devices, no fill: whether some plan keeps the threshold with at most the devices there are, and one that does. Only the smallest number of
/// replicas that suits matters then, and per cut only the fewest devices of all later stages: one number per cut instead of one per label.
[[nodiscard]] std::optional<Found> search_fewest_devices(const SearchSpace& space, double threshold_ms, SearchBudget& budget);

/// Gives the devices that a plan over uniform devices leaves idle to its stages, without a load above the threshold. Nothing if that does not work
/// out: it may with other cuts.
[[nodiscard]] std::optional<Found> use_all_devices(const SearchSpace& space, double threshold_ms, Found found);

/// The plan that a search has found, from its way back: `stage_above` tells the stage just above a cut whose label is `label`, from the first cut on.
[[nodiscard]] Found follow(const SearchSpace& space, int label, const std::function<FoundStage(int cut, int label)>& stage_above);

/// Loads of a plan that keeps the threshold are at most this.
inline double just_below(double value) { return std::nextafter(value, -std::numeric_limits<double>::infinity()); }

}  // namespace pipedream
