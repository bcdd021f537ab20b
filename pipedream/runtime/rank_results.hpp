#pragma once

#include <utility>
#include <vector>

#include "pipedream/core/bytes.hpp"
#include "pipedream/model/model.hpp"
#include "pipedream/runtime/stage.hpp"
#include "pipedream/runtime/trainer.hpp"

/// What ranks bring to rank 0 at the end of a run, as bytes. Internal to pipedream/runtime. Each get reads what its put has written.
namespace pipedream {

void put_result(ByteWriter& writer, const RankResult& result);
[[nodiscard]] RankResult get_result(ByteReader& reader);

void put_gradients(ByteWriter& writer, const std::vector<StepGradient>& gradients);
void get_gradients(ByteReader& reader, std::vector<StepGradient>& gradients);

/// With the node of the model that each belongs to.
using NodeWeights = std::vector<std::pair<int, NamedWeight>>;
/// The newest weights of a chunk, and its buffers. A tied parameter counts once, at its first place.
void put_weights(ByteWriter& writer, const Model& model, Stage& stage);
void get_weights(ByteReader& reader, NodeWeights& weights, NodeWeights& buffers);
[[nodiscard]] std::vector<NamedWeight> in_order_of_layers(NodeWeights weights);

}  // namespace pipedream
