#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/plan/piper_work.hpp"

namespace pipedream {

/// A stage of replicas that are groups of devices each.
struct PiperStage {
  std::vector<std::string> layers;
  std::vector<std::string> variants;  ///< per layer
  int tensor_degree = 1, replicas = 1;
  double time = 0;          ///< per sample, in the file's unit
  double memory_bytes = 0;  ///< of a device
  int in_flight = 1;        ///< samples of a replica
  [[nodiscard]] int devices() const { return tensor_degree * replicas; }
  bool operator==(const PiperStage&) const = default;
};

/// A split in Piper's cost model. No `Plan`: pipedream trains no stages whose tensors are split.
struct PiperPlan {
  std::vector<PiperStage> stages;  ///< first stage first
  int devices = 1;                 ///< there are
  double time = 0;                 ///< per sample in steady state, in the file's unit
  double bound = 0;                ///< no contiguous split takes less
  bool certified = false;          ///< the next smaller threshold was shown to have no split
  SearchStatistics search;
  bool operator==(const PiperPlan&) const = default;
};

/// The split with the least time per sample, exactly: contiguous stages, each with a tensor degree its layers have, a number of replicas that divides
/// the micro-batches, and per layer a variant. Replicas of all stages together are at most the micro-batches, devices at most those there are. Where
/// the graph has more than 200,000 cuts: the best over those of one topological order, certified only if all work spread evenly takes as long.
/// Formulas: docs/cost_model.md.
/// @throws UsageError, InputError, InfeasibleError
[[nodiscard]] PiperPlan plan_piper(const PiperGraph& graph, const PiperOptions& options);

/// The same plan with its numbers worked out anew by the formulas, in floating point and edge by edge: the separate check on the search.
/// @throws InputError if the plan does not fit the graph; a plan that exceeds memory is scored all the same
[[nodiscard]] PiperPlan evaluate_piper(const PiperGraph& graph, const PiperOptions& options, const PiperPlan& plan);

/// JSON, schema "pipedream.piper-plan/1".
[[nodiscard]] std::string piper_plan_to_json(const PiperPlan& plan);

}  // namespace pipedream
