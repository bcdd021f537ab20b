#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "pipedream/model/run.hpp"
#include "pipedream/runtime/micro_batches.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Forward of `micro_batches` micro-batches through the same chunks on the same ranks as `training`; no versions, no steps.
[[nodiscard]] Schedule evaluation_schedule(const Schedule& training, int micro_batches);

struct EvaluationResult {
  std::int64_t samples = 0;
  double loss = 0;                 ///< mean over the samples
  std::optional<double> accuracy;  ///< nothing where the model does not predict
};

/// (right predictions, predictions) of logits [rows, ..., classes] against targets [rows, ...]; (0, 0) where the shapes do not fit.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> count_hits(const at::Tensor& prediction, const at::Tensor& target);

/// Runs a whole model over data, on one device, without training it.
[[nodiscard]] EvaluationResult evaluate(const Model& model, const Layers& layers, std::int64_t micro_batches,
                                        const std::function<MicroBatchData(std::int64_t)>& data);

}  // namespace pipedream
