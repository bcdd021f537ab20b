#include "pipedream/sim/plan_for_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/cost_model.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

bool planner_knows(const std::string& schedule) {
  for (const char* known : {"1f1b-async", "1f1b", "gpipe", "model-parallel", "data-parallel", "auto"})
    if (schedule == known) return true;
  return false;
}

/// Every device as often as it gets chunks; the copies are neighbours on the lowest level.
Cluster multiplied(const Cluster& cluster, int times) {
  Cluster result;
  for (const Device& device : cluster.devices) {
    Device part = device;
    part.memory_bytes /= times;
    result.devices.insert(result.devices.end(), static_cast<std::size_t>(times), part);
  }
  result.levels = cluster.levels;
  if (result.levels.empty()) {
    const auto slowest =
        std::min_element(cluster.links.begin(), cluster.links.end(), [](const Link& a, const Link& b) { return a.bandwidth < b.bandwidth; });
    result.levels = {{cluster.num_devices(), slowest->bandwidth, slowest->latency_ms, false}};
  }
  result.levels[0].size *= times;
  return result;
}

/// What the simulator finds of several mini-batches, and the compute of the fullest rank as a bound.
void predict(Plan& plan, const Profile& profile, const Cluster& cluster) {
  const SimulationResult result = simulate(plan, profile, cluster, 3 * plan.micro_batches);
  plan.predicted.period_ms = result.period_ms;
  plan.predicted.certified = false;
  std::vector<double> load(static_cast<std::size_t>(plan.num_ranks()), 0);
  for (const StagePlan& stage : plan.stages)
    for (const int rank : stage.ranks)
      load[static_cast<std::size_t>(rank)] += stage.predicted.forward_ms + stage.predicted.backward_ms + stage.predicted.update_ms;
  plan.predicted.bound_ms = std::min(result.period_ms, *std::max_element(load.begin(), load.end()));
  for (StagePlan& stage : plan.stages) {
    stage.predicted.memory_bytes = static_cast<std::int64_t>(result.ranks[static_cast<std::size_t>(stage.ranks[0])].peak_memory_bytes) / plan.chunks;
    stage.predicted.in_flight = result.ranks[static_cast<std::size_t>(stage.ranks[0])].peak_activations;
  }
}

/// The whole model on every device, as data-parallel, its period from the simulator: exchanges go on beside the compute.
Plan plan_asp(const Profile& profile, const Cluster& cluster, const PlanOptions& given) {
  if (given.micro_batches > 1) throw UsageError("asp steps after every micro-batch", "leave out --micro-batches, or use data-parallel");
  PlanOptions options = given;
  options.schedule = "data-parallel";
  options.policy = "flush";
  options.micro_batches = cluster.num_devices();
  options.straight = false;
  Plan plan = make_plan(profile, cluster, options);
  plan.schedule = given.schedule;
  plan.policy = given.policy.empty() ? "stash" : given.policy;
  plan.micro_batches = 1;
  // Beside the weights and gradients of data parallelism: a copy as it came, a gradient and an answer under way, and a shard; its optimizer state
  // only.
  double weights = 0;
  for (const LayerProfile& layer : profile.layers) weights += static_cast<double>(layer.parameter_bytes);
  const double ranks = plan.num_ranks(), state = optimizer_state_factor(given.optimizer);
  for (StagePlan& stage : plan.stages)
    if (ranks > 1) stage.predicted.memory_bytes += static_cast<std::int64_t>(weights * (3 + 1 / ranks - state * (1 - 1 / ranks)));
  plan.predicted.period_ms = simulate(plan, profile, cluster, 12 * cluster.num_devices()).period_ms;
  plan.predicted.certified = false;
  plan.predicted.bound_ms = std::min(plan.predicted.bound_ms, plan.predicted.period_ms);
  return plan;
}

/// 1F1B takes forwards and backwards by turns, which exposes transfers that the planner's period counts as hidden (docs/cost_model.md).
void expose_transfers(Plan& plan, const Profile& profile, const Cluster& cluster, int extra_in_flight) {
  constexpr int kMostRanks = 64;  // above, a simulation costs more than it tells
  const bool straight = std::all_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) { return stage.ranks.size() == 1; });
  if (plan.schedule != "1f1b-async" || !straight || plan.num_stages() < 2 || plan.num_ranks() > kMostRanks) return;
  const Schedule schedule = schedule_of(plan, profile, std::max(200, 40 * plan.num_ranks()), extra_in_flight);
  SimulationOptions options = simulation_options(plan, profile, cluster);
  options.keep_trace = false;
  plan.predicted.exposed_ms = std::max(0.0, simulate(schedule, options).period_ms - plan.predicted.period_ms);
  if (plan.predicted.exposed_ms < 1e-3 * plan.predicted.period_ms) plan.predicted.exposed_ms = 0;
}

}  // namespace

Plan plan_for_schedule(const Profile& profile, const Cluster& cluster, const PlanOptions& given) {
  if (planner_knows(given.schedule)) {
    Plan plan = make_plan(profile, cluster, given);
    if (given.cost_model == "ring") expose_transfers(plan, profile, cluster, given.extra_in_flight);
    return plan;
  }
  const ScheduleInfo info = find_schedule(given.schedule);
  if (info.name == "asp") return plan_asp(profile, cluster, given);
  if (info.placement == Placement::Mirror || info.name == "seq1f1b")
    throw UsageError(fmt::format("the schedule {} can be simulated, but not planned and trained: {}", info.name,
                                 info.placement == Placement::Mirror ? "it keeps two copies of the model" : "it slices sequences"),
                     "choose another schedule (pipedream list schedules)");
  if (!given.shape.empty() && std::any_of(given.shape.begin(), given.shape.end(), [](int replicas) { return replicas != 1; }))
    throw UsageError(fmt::format("the schedule {} is planned without replicas", info.name), "give --ranks, or stages of one replica");
  PlanOptions options = given;
  options.schedule = "1f1b";
  options.policy = "flush";
  options.straight = true;
  options.shape.clear();
  const int chunks = info.chunks_per_rank, ranks = cluster.num_devices();
  Plan plan = make_plan(profile, chunks == 1 ? cluster : multiplied(cluster, chunks), options);
  plan.schedule = info.name;
  plan.policy = given.policy.empty() ? info.default_policy : given.policy;
  plan.chunks = chunks;
  const auto places = place_chunks(info.placement, chunks, std::vector<int>(static_cast<std::size_t>(ranks), 1));
  PD_CHECK(places.size() == plan.stages.size(), "{} chunks for {} stages", places.size(), plan.stages.size());
  for (std::size_t stage = 0; stage < plan.stages.size(); ++stage) plan.stages[stage].ranks = places[stage];
  if (chunks > 1) plan.alternatives = make_plan(profile, cluster, options).alternatives;  // of whole devices, not of the parts planned above
  predict(plan, profile, cluster);
  for (Alternative& alternative : plan.alternatives) compare(alternative, plan);  // with what the simulator found
  return plan;
}

}  // namespace pipedream
