#include <algorithm>
#include <map>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

/// Bytes that flow between stages: every tensor once per stage that reads it.
std::map<std::pair<int, int>, double> stage_edges(const Plan& plan, const Profile& profile) {
  std::vector<int> stage_of(static_cast<std::size_t>(profile.num_layers()), -1);
  for (int stage = 0; stage < plan.num_stages(); ++stage)
    for (const std::string& name : plan.stages[static_cast<std::size_t>(stage)].layers) {
      const auto layer = find_layer(profile, name);
      if (!layer)
        throw InputError("", fmt::format("stage {} of the plan holds layer '{}', which the profile does not have", stage, name),
                         "use the profile the plan was made from");
      stage_of[static_cast<std::size_t>(*layer)] = stage;
    }
  std::set<std::tuple<int, int, int>> sent;  // layer, output, reading stage
  std::map<std::pair<int, int>, double> edges;
  for (const ProfileEdge& edge : profile.edges) {
    const int from = stage_of[static_cast<std::size_t>(edge.source)], to = stage_of[static_cast<std::size_t>(edge.target)];
    if (from < 0 || to < 0 || from == to || !sent.emplace(edge.source, edge.output, to).second) continue;
    const LayerProfile& layer = profile.layers[static_cast<std::size_t>(edge.source)];
    const bool all = edge.output == ProfileEdge::kAllOutputs || static_cast<std::size_t>(edge.output) >= layer.output_bytes.size();
    edges[{from, to}] += static_cast<double>(all ? layer.total_output_bytes() : layer.output_bytes[static_cast<std::size_t>(edge.output)]);
  }
  return edges;
}

int state_copies(const std::string& optimizer) { return optimizer == "adam" || optimizer == "adamw" ? 2 : 1; }

ChunkCosts costs_of_stage(const StagePlan& stage, const Profile& profile, const std::string& optimizer, double input_bytes) {
  ChunkCosts costs{0, 0, 0};
  double weights = 0;
  for (const std::string& name : stage.layers) {
    const LayerProfile& layer = profile.layers[static_cast<std::size_t>(find_layer(profile, name).value())];
    costs.forward_ms += layer.forward_ms;
    // Where the parts could not be told apart the weight part is half: a linear layer's two products are of one size.
    const double weight_ms = layer.parameter_bytes == 0 ? 0 : layer.backward_weight_ms.value_or(layer.backward_ms / 2);
    costs.backward_weight_ms += std::min(weight_ms, layer.backward_ms);
    costs.backward_input_ms += layer.backward_ms - std::min(weight_ms, layer.backward_ms);
    costs.update_ms += layer.update_ms;
    costs.activation_bytes += static_cast<double>(layer.stashed_bytes.value_or(layer.total_output_bytes()));
    weights += static_cast<double>(layer.parameter_bytes);
  }
  if (stage.recompute) costs.activation_bytes = input_bytes;
  costs.reduce_bytes = static_cast<std::int64_t>(weights);
  costs.version_bytes = weights;
  costs.fixed_bytes = weights * (1 + state_copies(optimizer));
  return costs;
}

ScheduleRequest request_of(const Plan& plan, const Profile& profile, int micro_batches) {
  ScheduleRequest request;
  request.name = plan.schedule;
  request.policy = plan.policy;
  request.micro_batches = micro_batches;
  request.step_micro_batches = plan.micro_batches;
  for (const StagePlan& stage : plan.stages) {
    request.chunk_ranks.push_back(stage.ranks);
    request.recompute.push_back(stage.recompute);
  }
  for (const auto& [edge, bytes] : stage_edges(plan, profile)) request.edges.push_back(edge);
  return request;
}

}  // namespace

Schedule schedule_of(const Plan& plan, const Profile& profile, int micro_batches, int extra_in_flight) {
  ScheduleRequest request = request_of(plan, profile, micro_batches);
  request.extra_in_flight = extra_in_flight;
  return make_schedule(request);
}

SimulationOptions simulation_options(const Plan& plan, const Profile& profile, const Cluster& cluster) {
  SimulationOptions options;
  const auto edges = stage_edges(plan, profile);
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    double input_bytes = 0;
    for (const auto& [edge, bytes] : edges)
      if (edge.second == stage) input_bytes += bytes;
    options.chunks.push_back(costs_of_stage(plan.stages[static_cast<std::size_t>(stage)], profile, plan.optimizer, input_bytes));
  }
  for (const auto& [edge, bytes] : edges) options.edge_bytes.push_back(bytes);
  if (edges.empty() && plan.num_stages() > 1) options.edge_bytes.assign(static_cast<std::size_t>(plan.num_stages() - 1), 0);
  if (cluster.num_devices() < plan.num_ranks())
    throw InfeasibleError(fmt::format("the plan needs {} devices, the cluster has {}", plan.num_ranks(), cluster.num_devices()));
  for (int rank = 0; rank < plan.num_ranks(); ++rank) options.rank_factor.push_back(1 / cluster.devices[static_cast<std::size_t>(rank)].speed);
  options.links.cluster = cluster;
  return options;
}

SimulationResult simulate(const Plan& plan, const Profile& profile, const Cluster& cluster, int micro_batches) {
  return simulate(schedule_of(plan, profile, micro_batches), simulation_options(plan, profile, cluster));
}

}  // namespace pipedream
