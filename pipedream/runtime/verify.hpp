#pragma once

#include <string>
#include <vector>

#include "pipedream/runtime/trainer.hpp"

namespace pipedream {

/// The first steps of a run worked out again on one rank: one copy of the model, one micro-batch after the other, with a history of all
/// weights from which each stage reads the version that the schedule names. No stages, transports or slots are involved.
struct Reworked {
  std::vector<double> losses;           ///< per micro-batch
  std::vector<NamedWeight> weights;     ///< in the order of the model's layers
  std::vector<StepGradient> gradients;  ///< what every step followed
};
/// @param options  with `steps` set @throws UsageError for schedules that predict weights or slice sequences
[[nodiscard]] Reworked rework_on_one_rank(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources);

/// How far a run is from its rework.
struct VerifyReport {
  int micro_batches = 0;
  double loss_difference = 0;      ///< largest |a - b|
  int loss_at = 0;                 ///< of this micro-batch
  double gradient_difference = 0;  ///< largest |a - b| / largest |b| of the tensor
  std::string gradient_at;         ///< name of that tensor
  std::int64_t gradient_step = 0;  ///< of its stage, from 0
  double weight_difference = 0;    ///< largest |a - b| / largest |b| of the tensor
  std::string weight_at;           ///< name of that tensor
};
/// `run` is the result with the same options, `collect_weights` and `collect_gradients`.
[[nodiscard]] VerifyReport compare_with_rework(const TrainResult& run, const Reworked& rework);

}  // namespace pipedream
