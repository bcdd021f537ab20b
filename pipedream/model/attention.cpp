#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "pipedream/core/error.hpp"
#include "pipedream/model/layers.hpp"

namespace pipedream {
namespace {

// 0 where a position may look, minus infinity where it may not; [1, length, length], added to the scores before the softmax.
at::Tensor causal_bias(std::int64_t length, const at::Tensor& like) {
  return at::full({length, length}, -std::numeric_limits<float>::infinity(), like.options().requires_grad(false)).triu_(1).unsqueeze(0);
}

at::Tensor attend(const at::Tensor& qkv, std::int64_t heads, double probability, const LeafState& state, const ForwardContext& context) {
  const std::int64_t batch = qkv.size(0), length = qkv.size(1), width = qkv.size(2) / 3, head = width / heads;
  // One copy lays queries, keys and values out as three blocks of [batch * heads, length, head].
  const at::Tensor split = qkv.view({batch, length, 3, heads, head}).permute({2, 0, 3, 1, 4}).contiguous().view({3, batch * heads, length, head});
  const at::Tensor scores =
      at::baddbmm(causal_bias(length, qkv), split[0], split[1].transpose(1, 2), 1.0, 1.0 / std::sqrt(static_cast<double>(head)));
  at::Tensor weights = at::softmax(scores, -1);
  if (context.training && probability > 0)
    weights = weights * dropout_mask({batch, heads * length * length}, probability, state.layer_key, context).view(weights.sizes());
  const at::Tensor mixed = at::bmm(weights, split[2]);
  return mixed.view({batch, heads, length, head}).transpose(1, 2).reshape({batch, length, width});
}

}  // namespace

LayerRecipe causal_attention(std::int64_t width, std::int64_t heads, double dropout_probability) {
  if (heads < 1 || width % heads != 0) throw UsageError(fmt::format("{} heads do not divide a width of {}", heads, width));
  return leaf(fmt::format("CausalAttention({}, heads={})", width, heads),
              {{}, {}, [heads, dropout_probability](const LeafState& state, const Tensors& inputs, const ForwardContext& context) {
                 return Tensors{attend(inputs.at(0), heads, dropout_probability, state, context)};
               }});
}

}  // namespace pipedream
