#pragma once

#include <functional>
#include <vector>

#include "pipedream/model/model.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/trainer.hpp"

namespace pipedream::test {

/// A rule that an asynchronous schedule with replicated stages obeys.
struct ReplicaRule {
  std::function<int(int stage, int micro_batch)> version_of;  ///< which of its stage's weights a micro-batch reads
  std::vector<int> step_size;                                 ///< per stage: micro-batches of a step
};

struct ReplicaReenactment {
  std::vector<NamedWeight> weights;
  std::vector<double> losses;
};

/// One process, one copy of the model, the whole history of weights: micro-batches one after the other, each stage with the version that the
/// rule states. A step follows the mean gradient over the rows of its micro-batches, with the learning rate times step size / step size of
/// stage 0; SGD with momentum and weight decay as torch.optim.SGD defines them, written out here.
[[nodiscard]] ReplicaReenactment reenact_replicas(const Model& model, const Plan& plan, const ReplicaRule& rule, const TrainOptions& options,
                                                  MicroBatchSource& data);

}  // namespace pipedream::test
