#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/plan/search.hpp"

namespace pipedream {

/// Walks over the cuts below a cut, nearest first. Visit says whether to go on below the cut that it is shown: costs only grow on the way down.
class CutsBelow {
 public:
  explicit CutsBelow(const CutFamily& cuts) : cuts_(cuts) {
    if (cuts.is_chain()) return;
    seen_.assign(static_cast<std::size_t>(cuts.size()), -1);
    begin_.push_back(0);
    for (int cut = 0; cut < cuts.size(); ++cut) {
      lower_.insert(lower_.end(), cuts.below(cut).begin(), cuts.below(cut).end());
      begin_.push_back(static_cast<std::int32_t>(lower_.size()));
    }
  }

  template <typename Visit>
  void for_each(int high, Visit&& visit) {
    if (cuts_.is_chain()) {
      for (int low = high - 1; low >= 0 && visit(low); --low) {
      }
      return;
    }
    queue_.clear();
    const auto push = [&](int cut) {
      for (std::int32_t i = begin_[static_cast<std::size_t>(cut)]; i < begin_[static_cast<std::size_t>(cut) + 1]; ++i) {
        const int lower = lower_[static_cast<std::size_t>(i)];
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
  std::vector<std::int32_t> begin_, lower_;  // CutFamily::below in one piece: most of the time of a walk goes into reading it
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
