#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/orders.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

std::string shown_layers(const StagePlan& stage) {
  if (stage.layers.size() == 1) return fmt::format("layer '{}'", stage.layers.front());
  return fmt::format("layers '{}' to '{}'", stage.layers.front(), stage.layers.back());
}

// Some plan of a topological order when every device has this much memory.
std::optional<Plan> plan_with_memory(PlanProblem problem, std::int64_t memory) {
  for (DeviceKind& kind : problem.cost.kinds) kind.memory_bytes = memory;
  const CutFamily cuts = CutFamily::prefixes(problem.graph, problem.work, file_order(problem.graph));
  for (const DeviceLayout& layout : layouts_of(problem)) {
    SearchBudget budget;
    if (const auto found = search_labels(make_space(problem, cuts, layout), std::numeric_limits<double>::infinity(), budget))
      return plan_of(problem, cuts, layout, *found);
  }
  return std::nullopt;
}

}  // namespace

void fail_infeasible(const PlanProblem& problem) {
  const int devices = problem.cluster->num_devices();
  const auto unlimited = plan_with_memory(problem, 0);
  if (!unlimited) {
    if (!problem.options.shape.empty())
      throw InfeasibleError(fmt::format("no plan has the shape {} on {} devices", fmt::join(problem.options.shape, "-"), devices),
                            "replicas must add up to the devices, and a model has at most as many stages as layers");
    if (problem.options.straight && devices > problem.graph.size())
      throw InfeasibleError(
          fmt::format("{} devices, but the model can be cut into {} stages at most and --straight allows no replicas", devices, problem.graph.size()),
          "allow idle devices with --fewer-devices, or replicas by leaving out --straight");
    if (problem.options.straight && problem.options.max_stages > 0 && devices > problem.options.max_stages)
      throw InfeasibleError(fmt::format("{} devices, but at most {} stages and --straight allows no replicas", devices, problem.options.max_stages),
                            "allow idle devices with --fewer-devices, or raise --max-stages");
    throw InfeasibleError(fmt::format("no plan uses all {} devices within the given limits", devices), "allow idle devices with --fewer-devices");
  }
  std::int64_t low = 0, high = 1;
  for (const StagePlan& stage : unlimited->stages) high = std::max(high, stage.predicted.memory_bytes);
  std::optional<Plan> leanest = unlimited;
  while (high - low > std::max<std::int64_t>(1, high / 1000)) {
    const std::int64_t middle = low + (high - low) / 2;
    auto plan = middle > 0 ? plan_with_memory(problem, middle) : std::nullopt;
    if (plan) {
      leanest = std::move(plan);
      high = middle;
    } else {
      low = middle;
    }
  }
  const auto fullest = std::max_element(leanest->stages.begin(), leanest->stages.end(),
                                        [](const StagePlan& a, const StagePlan& b) { return a.predicted.memory_bytes < b.predicted.memory_bytes; });
  std::int64_t has = 0;
  for (const DeviceKind& kind : problem.cost.kinds) has = std::max(has, kind.memory_bytes);
  const std::int64_t needs = fullest->predicted.memory_bytes;
  throw InfeasibleError(
      fmt::format("no plan fits the memory: the leanest one ({}) needs {} for stage {} ({}), the devices have {}: {} are missing", leanest->shape(),
                  format_bytes(static_cast<double>(needs)), fullest->name, shown_layers(*fullest), format_bytes(static_cast<double>(has)),
                  format_bytes(static_cast<double>(std::max<std::int64_t>(needs - has, 0)))),
      "raise --memory, use more devices, a smaller micro-batch, a schedule that flushes or --recompute auto");
}

}  // namespace pipedream
