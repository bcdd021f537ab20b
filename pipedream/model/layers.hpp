#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipedream/model/leaf_layer.hpp"

/// Recipes of the usual layers. Defaults and initial weights are torch's unless a comment says otherwise. None changes its input in place.
namespace pipedream {

/// y = x W^T + b over the last dimension; parameters "weight" [out, in] and "bias" [out].
struct LinearOptions {
  bool bias = true;
  std::optional<Initial> weight_initial = std::nullopt;  ///< torch's default if empty
  std::optional<Initial> bias_initial = std::nullopt;    ///< torch's default if empty
};
[[nodiscard]] LayerRecipe linear(std::int64_t in, std::int64_t out, LinearOptions options = {});

/// [batch, in, height, width] -> [batch, out, height', width']; parameters "weight" [out, in / groups, kernel, kernel] and "bias" [out].
struct ConvOptions {
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
  std::optional<Initial> weight_initial = std::nullopt;
  std::optional<Initial> bias_initial = std::nullopt;
};
[[nodiscard]] LayerRecipe conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, ConvOptions options = {});

/// Batch norm over [batch, channels, height, width]; statistics of the micro-batch in training, running ones in evaluation.
/// Parameters "weight", "bias", buffers "running_mean", "running_var" (updated in training forwards only).
[[nodiscard]] LayerRecipe batch_norm2d(std::int64_t channels, double momentum = 0.1, double epsilon = 1e-5);

/// Layer norm over the last dimension; parameters "weight", "bias" [width].
[[nodiscard]] LayerRecipe layer_norm(std::int64_t width, double epsilon = 1e-5);

/// Integer tokens [batch, ...] -> [batch, ..., width]; parameter "weight" [count, width].
[[nodiscard]] LayerRecipe embedding(std::int64_t count, std::int64_t width, Initial initial = Initial::normal(1.0));

/// [batch, length, width] plus a learned vector per position; parameter "weight" [context, width], length <= context.
[[nodiscard]] LayerRecipe add_positions(std::int64_t context, std::int64_t width, Initial initial = Initial::normal(0.02));

/// Zeroes each element with the given probability in training and scales the rest so that the mean is kept. The mask of a row is a
/// function of (seed, layer name, sample key): see dropout_mask.
[[nodiscard]] LayerRecipe dropout(double probability);

[[nodiscard]] LayerRecipe relu();
[[nodiscard]] LayerRecipe gelu();
[[nodiscard]] LayerRecipe max_pool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
[[nodiscard]] LayerRecipe avg_pool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0);
/// Averages to a height and width of `size`.
[[nodiscard]] LayerRecipe adaptive_avg_pool2d(std::int64_t size);
/// [batch, ...] -> [batch, features].
[[nodiscard]] LayerRecipe flatten();
/// Sum of all inputs (of equal shape): a residual connection.
[[nodiscard]] LayerRecipe add();
/// Joins all inputs along dimension `dimension`.
[[nodiscard]] LayerRecipe concat(std::int64_t dimension = 1);

/// Attention of each position to itself and earlier ones. Input [batch, length, 3 * width] holds queries, keys and values (as one linear
/// layer gives them), output [batch, length, width]. No weights. `dropout_probability` applies to the attention weights.
[[nodiscard]] LayerRecipe causal_attention(std::int64_t width, std::int64_t heads, double dropout_probability = 0);

/// Mean cross-entropy over all rows (and positions). Inputs: logits [batch, ..., classes] and integer target [batch, ...]; output: a scalar.
[[nodiscard]] LayerRecipe cross_entropy();

/// The factors of a dropout: 0 with (about) the given probability, else the inverse of the kept share. Row r is a function of
/// (context.seed, layer_key, sample key of row r), whatever the other rows are.
/// @param shape of the tensor to be masked, the batch first
/// @param context `samples` must have one key per row; without keys the row number is the key
[[nodiscard]] at::Tensor dropout_mask(at::IntArrayRef shape, double probability, std::uint64_t layer_key, const ForwardContext& context);

}  // namespace pipedream
