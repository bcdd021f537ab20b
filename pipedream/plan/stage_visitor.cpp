#include "pipedream/plan/stage_visitor.hpp"

#include <algorithm>
#include <cmath>

namespace pipedream {
namespace {

constexpr double kMsPerPicosecondOf = 1e-9;
constexpr double kSlack = 1 - 1e-9;  // bounds are worked out by another order of operations than loads: never cut off by rounding

}  // namespace

StageFloor::StageFloor(const SearchSpace& space) : space_(space), measurements_(space.cuts->num_measurements()), recompute_(space.must_recompute) {
  fastest_ = 0;
  slowest_ = std::numeric_limits<double>::infinity();
  for (const DeviceKind& kind : space.cost->kinds) {
    fastest_ = std::max(fastest_, kind.rate);
    slowest_ = std::min(slowest_, kind.rate);
    largest_memory_ = kind.memory_bytes == 0 || largest_memory_ < 0 ? -1 : std::max(largest_memory_, kind.memory_bytes);
  }
  // Replicas of one stage share its micro-batches evenly: none does more than the fastest would.
  for (const StageSetting& setting : space.layout->settings) most_stage_capacity_ = std::max(most_stage_capacity_, setting.replicas * fastest_);
}

namespace {

double least_ms(const Work& work, bool recompute) {
  return static_cast<double>(work.compute_ps() + (recompute ? work.forward_ps : 0)) * kMsPerPicosecondOf * kSlack;
}

}  // namespace

double StageFloor::devices_needed(const Work* work, double threshold_ms) const {
  const double ms = least_ms(*work, recompute_) / fastest_;
  if (ms == 0) return 0;
  switch (space_.cost->form) {
    case CostForm::Steady:
      return threshold_ms > 0 ? ms / threshold_ms : std::numeric_limits<double>::infinity();
    // ceil(m / d) - 1 turns of ms must fit; m c / (T + c) is concave, so it bounds a sum of stages too.
    case CostForm::Flush:
      return space_.cost->micro_batches * ms / (std::max(0.0, threshold_ms) + ms) * kSlack;
    default:
      return 0;
  }
}

double StageFloor::least_capacity(const Work* work, double threshold_ms) const {
  if (std::isinf(threshold_ms)) return 0;
  // A slow device does more than its share when one turn of every stage is free: there only the number of devices bounds.
  return devices_needed(work, threshold_ms) * (space_.cost->form == CostForm::Steady ? fastest_ : slowest_) / (1 + 1e-9);
}

bool StageFloor::may_keep(const Work* work, double threshold_ms, double capacity) const { return least_capacity(work, threshold_ms) <= capacity; }

bool StageFloor::weights_fit(const Work* work) const {
  if (largest_memory_ < 0) return true;
  for (int k = 0; k < measurements_; ++k)
    if (static_cast<double>(work[k].parameter_bytes) * (1 + space_.cost->gradient_bytes + space_.cost->optimizer_state) <=
        static_cast<double>(largest_memory_))
      return true;
  return false;
}

}  // namespace pipedream
