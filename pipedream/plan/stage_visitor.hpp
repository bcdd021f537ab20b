#pragma once

#include <vector>

#include "pipedream/plan/search.hpp"

namespace pipedream {

/// Walks over the cuts below a cut, nearest first. Visit says whether to go on below the cut that it is shown: costs only grow on the way down.
class CutsBelow {
 public:
  explicit CutsBelow(const CutFamily& cuts) : cuts_(cuts), seen_(cuts.is_chain() ? 0 : static_cast<std::size_t>(cuts.size()), -1) {}

  template <typename Visit>
  void for_each(int high, Visit&& visit) {
    if (cuts_.is_chain()) {
      for (int low = high - 1; low >= 0 && visit(low); --low) {
      }
      return;
    }
    queue_.clear();
    const auto push = [&](int cut) {
      for (const int lower : cuts_.below(cut)) {
        if (seen_[static_cast<std::size_t>(lower)] == high) continue;
        seen_[static_cast<std::size_t>(lower)] = high;
        queue_.push_back(lower);
      }
    };
    push(high);
    for (std::size_t i = 0; i < queue_.size(); ++i)
      if (visit(queue_[i])) push(queue_[i]);
  }

 private:
  const CutFamily& cuts_;
  std::vector<int> seen_, queue_;
};

/// The least that a stage can cost whatever its devices: bounds that stop the walk early.
class StageFloor {
 public:
  explicit StageFloor(const SearchSpace& space);
  /// Some number of devices worth `capacity` may keep the threshold.
  [[nodiscard]] bool may_keep(const Work* work, double threshold_ms, double capacity) const;
  /// Devices of the fastest kind that the work needs at least, all together.
  [[nodiscard]] double devices_needed(const Work* work, double threshold_ms) const;
  /// What devices must be worth at least to keep the threshold with that much work.
  [[nodiscard]] double least_capacity(const Work* work, double threshold_ms) const;
  /// The most that the devices of one stage can be worth.
  [[nodiscard]] double most_stage_capacity() const { return most_stage_capacity_; }
  /// The weights alone fit some device.
  [[nodiscard]] bool weights_fit(const Work* work) const;

 private:
  const SearchSpace& space_;
  double fastest_ = 1, slowest_ = 1;
  double most_stage_capacity_ = 0;
  std::int64_t largest_memory_ = 0;
  int measurements_ = 1;
  bool recompute_ = false;
};

}  // namespace pipedream
