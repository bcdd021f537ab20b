#pragma once

#include <string>
#include <vector>

#include "pipedream/model/model.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/trainer.hpp"

/// Small models, data in memory and plans by hand, for tests of the runtime.
namespace pipedream::test {

[[nodiscard]] Model small_mlp();       ///< 6 layers of weights
[[nodiscard]] Model small_residual();  ///< convolutions, batch norm, two residual skips
[[nodiscard]] Model small_dropout();   ///< an MLP with dropout between its layers
[[nodiscard]] Model small_tied();      ///< embedding and output layer share their weight

/// Random data: inputs of the model's shapes; integer ones are below `classes`. Every micro-batch has `rows` rows, the last one `last_rows`.
struct DataShape {
  int micro_batches = 8;
  std::int64_t rows = 4, last_rows = 4;
  std::int64_t classes = 5;
};
[[nodiscard]] SourceFactory random_data(const Model& model, const DataShape& shape, bool with_test = false);

/// Cuts a model into stages of about equally many layers; stage k has `replicas[k]` ranks.
[[nodiscard]] Plan plan_by_count(const Model& model, const std::vector<int>& replicas, const std::string& schedule, const std::string& policy,
                                 int micro_batches);

/// Largest |a - b| / (largest |b| of the tensor + 1e-12) over all tensors. Infinite where names or shapes differ.
[[nodiscard]] double largest_difference(const std::vector<NamedWeight>& a, const std::vector<NamedWeight>& b);

[[nodiscard]] TrainResult run_training(const Model& model, const Plan& plan, TrainOptions options, const SourceFactory& data);

}  // namespace pipedream::test
