#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "pipedream/model/model.hpp"

/// A whole model on one device: what a pipeline is compared with, and what the profiler measures.
namespace pipedream {

using Layers = std::vector<std::unique_ptr<Layer>>;

/// One instance of every layer, ties made. @throws UsageError for a tie that names a parameter its layer does not have
[[nodiscard]] Layers create_layers(const Model& model, std::uint64_t seed);

/// Further instances of all layers with weights of their own and the same buffers; ties hold among them.
[[nodiscard]] Layers another_version(const Model& model, const Layers& layers);

/// Makes parameters of `layers` shared as the model's ties say. Places whose layer is null (on another stage) are left out.
void apply_ties(const Model& model, const Layers& layers);

struct ModelOutputs {
  at::Tensor loss;        ///< a scalar: mean over the micro-batch
  at::Tensor prediction;  ///< undefined if the model has none
};

/// Runs all layers in order. Intermediate outputs are let go after their last reader.
/// @param inputs one tensor per model input, the batch first
[[nodiscard]] ModelOutputs run(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context);

/// As run, with callbacks for what happens between layers: `before` with the layer's number, `after` also with its outputs, which it may replace.
/// Either may be empty. @return the loss
at::Tensor run_layers(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context,
                      const std::function<void(std::size_t layer)>& before, const std::function<void(std::size_t layer, Tensors& outputs)>& after);

/// The inputs that a layer reads, out of the model's inputs and the outputs of earlier layers.
[[nodiscard]] Tensors gather_inputs(const LayerNode& node, const Tensors& model_inputs, const std::vector<Tensors>& outputs);

/// Distinct parameters in the order of the layers (tied ones once), and the sum of their elements.
[[nodiscard]] std::vector<NamedTensor> distinct_parameters(const Model& model, const Layers& layers);
[[nodiscard]] std::int64_t count_elements(const std::vector<NamedTensor>& tensors);

/// Bytes of a layer's parameters and buffers.
[[nodiscard]] std::int64_t parameter_bytes(const Layer& layer);
[[nodiscard]] std::int64_t buffer_bytes(const Layer& layer);

}  // namespace pipedream
