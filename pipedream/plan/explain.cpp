#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {

std::string explain_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan) {
  (void)profile, (void)cluster, (void)options;
  const auto slowest = std::max_element(plan.stages.begin(), plan.stages.end(),
                                        [](const StagePlan& a, const StagePlan& b) { return a.predicted.load_ms < b.predicted.load_ms; });
  return fmt::format("bottleneck: stage {}, {}\n", slowest->name, format_ms(slowest->predicted.load_ms));
}

}  // namespace pipedream
