#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/network.hpp"
#include "pipedream/plan/problem.hpp"

// The slow way from a plan to its numbers: everything is added up anew from layers, edges and ranks. Only the formulas of the cost model are shared
// with the searches.
namespace pipedream {
namespace {

struct StageContent {
  std::vector<Work> work;  // per measurement
  std::int64_t in_bytes = 0, out_bytes = 0;
};

// The measurement's work of each layer of the profile: a node's work lies on its first layer, which is in the same stage as the rest of it.
std::vector<std::vector<Work>> work_of_layers(const PlanProblem& problem) {
  std::vector<std::vector<Work>> result(problem.work.size(), std::vector<Work>(problem.profile->layers.size()));
  for (std::size_t k = 0; k < problem.work.size(); ++k)
    for (std::size_t node = 0; node < problem.work[k].size(); ++node)
      result[k][static_cast<std::size_t>(problem.graph.layers[node].front())] = problem.work[k][node];
  return result;
}

std::vector<int> stage_of_layers(const PlanProblem& problem, const Plan& plan) {
  std::unordered_map<std::string_view, int> stage_of;
  for (int s = 0; s < plan.num_stages(); ++s)
    for (const std::string& layer : plan.stages[static_cast<std::size_t>(s)].layers) stage_of.emplace(layer, s);
  std::vector<int> result;
  for (const LayerProfile& layer : problem.profile->layers) result.push_back(stage_of.at(layer.name));
  return result;
}

std::vector<StageContent> contents_of(const PlanProblem& problem, const Plan& plan) {
  const Profile& profile = *problem.profile;
  const std::vector<int> stage_of = stage_of_layers(problem, plan);
  std::vector<StageContent> stages(plan.stages.size());
  const auto work = work_of_layers(problem);
  for (StageContent& stage : stages) stage.work.resize(work.size());
  for (std::size_t layer = 0; layer < stage_of.size(); ++layer)
    for (std::size_t k = 0; k < work.size(); ++k) stages[static_cast<std::size_t>(stage_of[layer])].work[k] += work[k][layer];

  std::map<std::pair<int, int>, std::set<int>> readers;  // of each tensor: stages
  for (const ProfileEdge& edge : profile.edges) {
    const int outputs = static_cast<int>(profile.layers[static_cast<std::size_t>(edge.source)].output_bytes.size());
    for (int o = 0; o < outputs; ++o)
      if (edge.output == o || edge.output == ProfileEdge::kAllOutputs)
        readers[{edge.source, o}].insert(stage_of[static_cast<std::size_t>(edge.target)]);
  }
  for (const auto& [tensor, by] : readers) {
    const auto [layer, output] = tensor;
    if (is_input_layer(profile, layer)) continue;
    const int source = stage_of[static_cast<std::size_t>(layer)];
    const std::int64_t bytes = profile.layers[static_cast<std::size_t>(layer)].output_bytes[static_cast<std::size_t>(output)];
    bool leaves = false;
    for (const int target : by)
      if (target != source) {
        stages[static_cast<std::size_t>(target)].in_bytes += bytes;
        leaves = true;
      }
    if (leaves) stages[static_cast<std::size_t>(source)].out_bytes += bytes;
  }
  return stages;
}

void check_fits(const PlanProblem& problem, const Plan& plan) {
  validate(plan, "plan");
  const Profile& profile = *problem.profile;
  std::unordered_map<std::string_view, int> stage_of;
  for (int s = 0; s < plan.num_stages(); ++s)
    for (const std::string& layer : plan.stages[static_cast<std::size_t>(s)].layers) stage_of.emplace(layer, s);
  std::set<std::string_view> known;
  for (const LayerProfile& layer : profile.layers) {
    known.insert(layer.name);
    if (!stage_of.count(layer.name))
      throw InputError("plan", fmt::format("layer '{}' of the profile is in no stage", layer.name), "place every layer of the profile");
  }
  for (const auto& [layer, stage] : stage_of)
    if (!known.count(layer))
      throw InputError("plan", fmt::format("stage {} holds layer '{}', which the profile does not have", stage, layer),
                       "use the profile the plan was made for");
  for (const ProfileEdge& edge : profile.edges) {
    const std::string &a = profile.layers[static_cast<std::size_t>(edge.source)].name,
                      &b = profile.layers[static_cast<std::size_t>(edge.target)].name;
    if (stage_of.at(a) > stage_of.at(b))
      throw InputError(
          "plan",
          fmt::format("layer '{}' of stage {} is read by layer '{}' of stage {}: data would flow backwards", a, stage_of.at(a), b, stage_of.at(b)),
          "move one of the layers");
  }
  for (const auto& layers : problem.graph.layers)
    for (const int layer : layers) {
      const std::string &a = profile.layers[static_cast<std::size_t>(layers.front())].name, &b = profile.layers[static_cast<std::size_t>(layer)].name;
      if (stage_of.at(a) != stage_of.at(b))
        throw InputError("plan",
                         fmt::format("layers '{}' and '{}' share parameters but lie in stages {} and {}", a, b, stage_of.at(a), stage_of.at(b)),
                         "put them on one stage or use a schedule that flushes");
    }
  if (plan.num_ranks() > problem.cluster->num_devices())
    throw InputError("plan", fmt::format("the plan has {} ranks, the cluster {} devices", plan.num_ranks(), problem.cluster->num_devices()),
                     "use the cluster the plan was made for");
}

std::vector<int> ranks_or_none(const Plan& plan, int stage) {
  return stage < 0 || stage >= plan.num_stages() ? std::vector<int>{} : plan.stages[static_cast<std::size_t>(stage)].ranks;
}

}  // namespace

void predict(const PlanProblem& problem, Plan& plan) {
  const std::vector<StageContent> contents = contents_of(problem, plan);
  std::vector<double> load_of_rank(static_cast<std::size_t>(plan.num_ranks()), 0);
  double fill = 0;
  plan.predicted = {};
  int ranks_from_here = plan.num_ranks();
  for (int s = 0; s < plan.num_stages(); ++s) {
    StagePlan& stage = plan.stages[static_cast<std::size_t>(s)];
    const StageContent& content = contents[static_cast<std::size_t>(s)];
    const StageSetting setting = setting_of(*problem.cluster, problem.kinds, stage.ranks, ranks_or_none(plan, s - 1), ranks_or_none(plan, s + 1));
    const StageSum sum{content.work.data(), content.in_bytes, content.out_bytes};
    const StageTime time = problem.cost.time(sum, setting, stage.recompute);
    const InFlight in_flight = problem.in_flight({stage.replicas(), std::max(stage.replicas(), ranks_from_here)});
    StagePrediction& p = stage.predicted;
    p = {time.forward_ms,    time.backward_ms,       time.update_ms, time.transfer_ms, time.reduce_ms, time.load_ms, 0,
         in_flight.versions, in_flight.micro_batches};
    if (problem.cost.form != CostForm::Steady) p.load_ms = time.load_ms / problem.cost.micro_batches;
    p.memory_bytes = problem.cost.memory_bytes(sum, setting, in_flight, stage.recompute);
    for (const int rank : stage.ranks) load_of_rank[static_cast<std::size_t>(rank)] += time.load_ms;
    fill += time.fill_ms;
    plan.predicted.bytes_per_micro_batch += problem.cost.traffic_bytes(sum, setting);
    ranks_from_here -= stage.replicas();
  }
  plan.predicted.period_ms = problem.cost.period_ms(*std::max_element(load_of_rank.begin(), load_of_rank.end()), fill);
  plan.predicted.data_parallel_bytes_per_micro_batch = data_parallel_bytes(problem);
}

double data_parallel_bytes(const PlanProblem& problem) {
  const int d = problem.cluster->num_devices();
  StageSetting all;
  all.replicas = d;
  all.kinds = {0};
  std::vector<Work> total(problem.work.size());
  total.front() = problem.graph.total();
  const int times = problem.kinds.kinds.front().times;
  if (times != 0) total[static_cast<std::size_t>(times)].parameter_bytes = total.front().parameter_bytes;
  return problem.cost.traffic_bytes({total.data(), 0, 0}, all);
}

Plan evaluate_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& given, const Plan& plan) {
  PlanOptions options = given;
  options.schedule = plan.schedule;
  options.policy = plan.policy;
  options.optimizer = plan.optimizer;
  options.micro_batches = plan.micro_batches;
  options.cost_model = plan.cost_model;
  const PlanProblem problem = make_problem(profile, cluster, options);
  check_fits(problem, plan);
  Plan result = plan;
  result.alternatives.clear();
  result.search = {};
  result.profile_fingerprint = fingerprint(profile);
  result.cluster_fingerprint = fingerprint(cluster);
  predict(problem, result);
  return result;
}

std::vector<std::pair<int, std::int64_t>> memory_excess(const Plan& plan, const Cluster& cluster) {
  std::vector<std::pair<int, std::int64_t>> result;
  for (int s = 0; s < plan.num_stages(); ++s) {
    const StagePlan& stage = plan.stages[static_cast<std::size_t>(s)];
    std::int64_t over = 0;
    for (const int rank : stage.ranks)
      if (rank < cluster.num_devices())
        if (const std::int64_t has = cluster.devices[static_cast<std::size_t>(rank)].memory_bytes; has > 0)
          over = std::max(over, stage.predicted.memory_bytes - has);
    if (over > 0) result.emplace_back(s, over);
  }
  return result;
}

}  // namespace pipedream
