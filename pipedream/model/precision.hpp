#pragma once

#include <string>

#include "pipedream/model/layer.hpp"

namespace pipedream {

/// What layers compute in. Weights, their gradients and the optimizer stay in float32.
enum class Precision {
  Float32,
  /// Matrix products and convolutions take and give bfloat16, as torch's autocast decides per operator; the loss is computed in float32.
  /// Activations and their gradients travel as they come out: half the bytes where they are bfloat16.
  BFloat16,
};

/// "float32", "bfloat16". @throws UsageError for another name
[[nodiscard]] Precision parse_precision(const std::string& name);
[[nodiscard]] std::string name_of(Precision precision);

/// Whether this machine's cores have instructions for products of bfloat16; without, they are slower than float32.
[[nodiscard]] bool cores_have_bfloat16();

/// layer.forward() in the context's precision.
[[nodiscard]] Tensors run_layer(Layer& layer, const Tensors& inputs, const ForwardContext& context, bool is_loss);

}  // namespace pipedream
