#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace pipedream {

/// What the cost model says of one stage. Times in ms per micro-batch of one replica unless said otherwise.
struct StagePrediction {
  double forward_ms = 0;
  double backward_ms = 0;         ///< recomputation included
  double update_ms = 0;           ///< optimizer step, per micro-batch (a step of a mini-batch is spread over its micro-batches)
  double transfer_ms = 0;         ///< activations and gradients in and out
  double reduce_ms = 0;           ///< all-reduce of the replicas' gradients, per micro-batch
  double load_ms = 0;             ///< what this stage takes of the period: per micro-batch of the whole pipeline, divided by replicas
  std::int64_t memory_bytes = 0;  ///< of one replica at its peak
  int versions = 1;               ///< weight versions held
  int in_flight = 1;              ///< micro-batches between forward and backward at the peak, per replica
  bool operator==(const StagePrediction&) const = default;
};

/// Layers that run on the same ranks.
struct StagePlan {
  std::string name;                 ///< "0", "1", ...
  std::vector<std::string> layers;  ///< names, in topological order
  std::vector<int> ranks;           ///< one per replica; micro-batch i runs on ranks[i mod replicas]
  bool recompute = false;
  StagePrediction predicted;
  [[nodiscard]] int replicas() const { return static_cast<int>(ranks.size()); }
  bool operator==(const StagePlan&) const = default;
};

/// A plan that was not chosen, for comparison.
struct Alternative {
  std::string name;  ///< "single", "data-parallel", "straight", ...
  double period_ms = 0;
  bool feasible = true;
  std::string reason;             ///< why it is not feasible, or what makes it worse
  std::string shape;              ///< replicas per stage, "2-1-1"
  std::int64_t memory_bytes = 0;  ///< of the fullest device
  double bytes_per_micro_batch = 0;
  bool operator==(const Alternative&) const = default;
};

struct PlanPrediction {
  double period_ms = 0;                            ///< time per micro-batch in steady state; of flush schedules mini-batch time / micro-batches
  double bound_ms = 0;                             ///< no plan can be faster under the same cost model and limits
  bool certified = false;                          ///< the bound was proved equal to the period
  double exposed_ms = 0;                           ///< what the order of the schedule adds to the period: transfers that it cannot hide (simulated)
  double bytes_per_micro_batch = 0;                ///< that cross links, all ranks together
  double data_parallel_bytes_per_micro_batch = 0;  ///< the same of data parallelism on all devices
  /// What a run is expected to take per micro-batch.
  [[nodiscard]] double expected_ms() const { return period_ms + exposed_ms; }
  [[nodiscard]] double gap() const { return bound_ms > 0 ? period_ms / bound_ms - 1 : 0; }
  bool operator==(const PlanPrediction&) const = default;
};

struct SearchStatistics {
  double seconds = 0;
  std::int64_t states = 0;
  bool operator==(const SearchStatistics&) const = default;
};

/// How a model is cut over ranks, and what is expected of it. File form: JSON, schema "pipedream.plan/1" (docs/file_formats.md).
struct Plan {
  std::string model;
  std::string schedule = "1f1b-async";
  std::string policy = "stash";
  std::string cost_model = "ring";
  std::string optimizer = "sgd";
  int micro_batch = 0;            ///< samples per micro-batch; 0 if unknown
  int micro_batches = 1;          ///< per mini-batch
  int chunks = 1;                 ///< stages per rank
  std::vector<StagePlan> stages;  ///< in topological order; with chunks > 1 a rank appears in several stages
  PlanPrediction predicted;
  std::vector<Alternative> alternatives;
  SearchStatistics search;
  std::string profile_fingerprint, cluster_fingerprint;

  [[nodiscard]] int num_stages() const { return static_cast<int>(stages.size()); }
  [[nodiscard]] int num_ranks() const;      ///< largest rank + 1
  [[nodiscard]] std::string shape() const;  ///< replicas per stage, "2-1-1"
  bool operator==(const Plan&) const = default;
};

/// Checks that stages, layers and ranks are there, that no layer is placed twice and every rank from 0 up is used. @throws InputError
void validate(const Plan& plan, const std::string& place);

std::ostream& operator<<(std::ostream& out, const Plan& plan);
[[nodiscard]] std::string plan_to_json(const Plan& plan);
[[nodiscard]] Plan plan_from_json(const std::string& text, const std::string& file);
[[nodiscard]] Plan load_plan(const std::string& file);

}  // namespace pipedream
