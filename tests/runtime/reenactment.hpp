#pragma once

#include <functional>

#include "pipedream/runtime/trainer.hpp"

namespace pipedream::test {

/// Trains in one thread, without pipeline, schedule, stages or our optimizers, by the rule of a policy alone: every version of every
/// stage's weights is kept, and micro-batch i runs with version `version_of(stage, i)` of stage's weights, forward and backward.
/// A stage steps after every `step_size` micro-batches, with torch's own optimizer, on the mean gradient over their rows.
struct Reenactment {
  std::vector<std::vector<std::string>> stages;  ///< layer names
  std::function<int(int stage, int micro_batch)> version_of;
  int step_size = 1;
};

struct ReenactmentResult {
  std::vector<NamedWeight> weights;  ///< in the order of the model's layers
  std::vector<double> losses;
};

[[nodiscard]] ReenactmentResult reenact(const Model& model, const Reenactment& rule, const TrainOptions& options, MicroBatchSource& data);

}  // namespace pipedream::test
