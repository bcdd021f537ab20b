#pragma once

#include <cstdint>
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
  std::string best_shape;  ///< of the best one, layers as bits

 private:
  struct Stage {
    std::uint32_t layers = 0;
    std::vector<int> ranks;
    bool recompute = false;
  };
  void extend(std::uint32_t placed);
  void place(std::uint32_t placed, std::uint32_t layers);
  void score();
  bool is_cut(std::uint32_t layers) const;

  const Profile& profile;
  const Cluster& cluster;
  const PlanOptions& options;
  std::vector<Stage> stages_;
  std::vector<std::uint32_t> cuts_;
  std::optional<double> best_;
  bool limited_ = false;
};

}  // namespace pipedream
