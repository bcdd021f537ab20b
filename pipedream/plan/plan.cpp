#include "pipedream/plan/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

void check_stage(const StagePlan& stage, std::size_t index, const std::string& place) {
  if (stage.layers.empty()) throw InputError(place, fmt::format("stage {} has no layers", index), "give it a layer or remove it");
  if (stage.ranks.empty()) throw InputError(place, fmt::format("stage {} has no ranks", index), "give it a rank");
  std::vector<int> ranks = stage.ranks;
  std::sort(ranks.begin(), ranks.end());
  if (ranks.front() < 0) throw InputError(place, fmt::format("stage {} names rank {}", index, ranks.front()), "ranks count from 0");
  if (ranks.back() >= 1'000'000) throw InputError(place, fmt::format("stage {} names rank {}", index, ranks.back()), "a million ranks is the most");
  if (const auto twice = std::adjacent_find(ranks.begin(), ranks.end()); twice != ranks.end())
    throw InputError(place, fmt::format("stage {} names rank {} twice", index, *twice), "one replica per rank");
}

void check_layers(const Plan& plan, const std::string& place) {
  std::unordered_map<std::string_view, std::size_t> stage_of;
  for (std::size_t i = 0; i < plan.stages.size(); ++i)
    for (const std::string& layer : plan.stages[i].layers) {
      if (layer.empty()) throw InputError(place, fmt::format("stage {} holds a layer without a name", i), "name layers as the profile does");
      const auto [at, fresh] = stage_of.emplace(layer, i);
      if (!fresh) throw InputError(place, fmt::format("layer '{}' lies in stage {} and in stage {}", layer, at->second, i), "place every layer once");
    }
}

void check_ranks(const Plan& plan, const std::string& place) {
  std::vector<int> stages_of(static_cast<std::size_t>(plan.num_ranks()), 0);
  for (const StagePlan& stage : plan.stages)
    for (const int rank : stage.ranks) ++stages_of[static_cast<std::size_t>(rank)];
  for (std::size_t rank = 0; rank < stages_of.size(); ++rank) {
    if (stages_of[rank] == 0) throw InputError(place, fmt::format("rank {} has no stage", rank), "use every rank from 0 up");
    if (stages_of[rank] > plan.chunks)
      throw InputError(place, fmt::format("rank {} has {} stages, but chunks is {}", rank, stages_of[rank], plan.chunks),
                       "raise chunks or move a stage");
  }
}

}  // namespace

int Plan::num_ranks() const {
  int largest = -1;
  for (const StagePlan& stage : stages)
    for (const int rank : stage.ranks) largest = std::max(largest, rank);
  return largest + 1;
}

std::string Plan::shape() const {
  std::string text;
  for (const StagePlan& stage : stages) text += fmt::format("{}{}", text.empty() ? "" : "-", stage.replicas());
  return text;
}

void validate(const Plan& plan, const std::string& place) {
  if (plan.stages.empty()) throw InputError(place, "the plan has no stages", "make one with `pipedream plan`");
  if (plan.micro_batches < 1) throw InputError(place, fmt::format("micro_batches is {}, it must be 1 or more", plan.micro_batches), "");
  if (plan.micro_batch < 0) throw InputError(place, fmt::format("micro_batch is negative: {}", plan.micro_batch), "give samples per micro-batch");
  if (plan.chunks < 1) throw InputError(place, fmt::format("chunks is {}, it must be 1 or more", plan.chunks), "");
  for (std::size_t i = 0; i < plan.stages.size(); ++i) check_stage(plan.stages[i], i, place);
  check_layers(plan, place);
  check_ranks(plan, place);
}

std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  return out << fmt::format("plan of {}: {} stages, shape {}, {} {}, {} per micro-batch", plan.model.empty() ? "a model" : plan.model,
                            plan.num_stages(), plan.shape(), plan.schedule, plan.policy, format_ms(plan.predicted.period_ms));
}

}  // namespace pipedream
