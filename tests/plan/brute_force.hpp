#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/planner.hpp"

namespace pipedream {

/// The oracle of the planner tests: tries every chain of cuts, every placement and every recompute mark, with formulas written out a second time
/// from docs/cost_model.md. Shares no code with the planner. Only for a handful of layers and devices.
class BruteForce {
 public:
  BruteForce(const Profile& p, const Cluster& c, const PlanOptions& o) : profile(p), cluster(c), options(o) {}

  /// The smallest period, nothing if no plan keeps the limits.
  [[nodiscard]] std::optional<double> best();
  std::int64_t plans = 0;  ///< complete plans looked at
  std::int64_t most_plans = std::numeric_limits<std::int64_t>::max();
  [[nodiscard]] bool gave_up() const { return plans >= most_plans; }
  std::string best_shape;  ///< of the best one, layers as bits

  struct Tensor {
    int source = 0;
    std::uint32_t readers = 0;  // layers as bits
    double bytes = 0;
  };

 private:
  struct Stage {
    std::uint32_t layers = 0;
    std::vector<int> ranks;
    bool recompute = false;
  };
  void extend(std::uint32_t placed, std::uint32_t used);
  void place(std::uint32_t placed, std::uint32_t layers, std::uint32_t used);
  void go_on(std::uint32_t placed, std::uint32_t layers, std::uint32_t used, std::uint32_t ranks);
  void score();
  void list_orders();
  bool one_network() const;
  bool mixed() const;
  bool is_cut(std::uint32_t layers) const;

  const Profile& profile;
  const Cluster& cluster;
  const PlanOptions& options;
  std::vector<Stage> stages_;
  std::vector<std::uint32_t> cuts_;
  std::vector<Tensor> tensors_;
  std::vector<std::vector<int>> orders_;  // place to device
  const std::vector<int>* order_ = nullptr;
  std::optional<double> best_;
  bool limited_ = false;
};

}  // namespace pipedream
