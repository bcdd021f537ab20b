#pragma once

#include <array>
#include <vector>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/plan/cost_model.hpp"

/// What a cluster's links mean for stages. Two ways to the same numbers: fast ones for runs of consecutive devices, which planners use,
/// and slow ones for any set of devices, which score given plans.
namespace pipedream {

/// Cost of one way: ms per byte and ms per message.
struct WayCost {
  double ms_per_byte = 0, latency_ms = 0;
  bool operator==(const WayCost&) const = default;
};

class Network {
 public:
  explicit Network(const Cluster& cluster);

  /// The slowest way that a device of [first, last] has to device `other` outside; shared links are divided among the devices of the run.
  [[nodiscard]] WayCost way(int first, int last, int other) const;
  /// All-reduce over the devices first .. last: one ring through all of them; and reduce-scatter inside groups, rings across, all-gather inside.
  [[nodiscard]] std::array<ReduceLine, 2> reduce(int first, int last) const;

  /// The slowest over `devices` of the best way to one of `others` (ascending).
  [[nodiscard]] WayCost way(const std::vector<int>& devices, const std::vector<int>& others) const;
  /// The same two algorithms for any set of devices (ascending).
  [[nodiscard]] std::array<ReduceLine, 2> reduce(const std::vector<int>& devices) const;

  /// All ways cost the same: where a stage lies does not matter.
  [[nodiscard]] bool is_uniform() const { return uniform_; }
  [[nodiscard]] int num_levels() const { return static_cast<int>(levels_.size()); }
  /// Devices per group of a level.
  [[nodiscard]] int group_size(int level) const { return groups_[static_cast<std::size_t>(level)]; }

 private:
  [[nodiscard]] int level_between(int a, int b) const;
  [[nodiscard]] WayCost link(int level) const;
  [[nodiscard]] WayCost matrix_way(int from, int to) const;
  [[nodiscard]] WayCost direct(int from, int to) const;
  [[nodiscard]] int nearest(int device, const std::vector<int>& others) const;
  [[nodiscard]] ReduceLine ring(int first, int last) const;
  [[nodiscard]] ReduceLine tree(int first, int last) const;
  [[nodiscard]] ReduceLine tree(const int* begin, const int* end, int level) const;
  [[nodiscard]] ReduceLine across(int level, int parts, int part_size, const ReduceLine& inside) const;

  std::vector<Level> levels_;
  std::vector<int> groups_;  ///< devices per group of each level
  std::vector<WayCost> matrix_;
  int devices_ = 0;
  bool uniform_ = true;
};

}  // namespace pipedream
