#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/model/dropout_kernel.hpp"
#include "pipedream/model/layers.hpp"

namespace pipedream {
namespace {

constexpr std::uint64_t kDropoutDomain = 0x64726f706f757431ULL;  // keeps masks apart from initial weights of the same seed and layer

}  // namespace

at::Tensor dropout_mask(at::IntArrayRef shape, double probability, std::uint64_t layer_key, const ForwardContext& context) {
  PD_CHECK(!shape.empty() && probability >= 0 && probability < 1, "dropout of {}", probability);
  at::Tensor mask = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const std::int64_t rows = shape[0];
  PD_CHECK(!context.samples || static_cast<std::int64_t>(context.samples->size()) == rows, "{} sample keys for {} rows",
           context.samples ? context.samples->size() : 0, rows);
  if (mask.numel() == 0) return mask;
  const auto threshold = static_cast<std::uint16_t>(std::min(65535.0, std::round(probability * 65536)));
  const float scale = 65536.0F / static_cast<float>(65536 - threshold);
  const std::uint64_t key = combine_keys(combine_keys(combine_keys(kDropoutDomain, context.seed), layer_key), 0);
  const std::int64_t width = mask.numel() / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::uint64_t sample = context.samples ? (*context.samples)[static_cast<std::size_t>(row)] : static_cast<std::uint64_t>(row);
    fill_mask_row(mask.data_ptr<float>() + row * width, width, combine_keys(key, sample), threshold, scale);
  }
  return mask;
}

LayerRecipe dropout(double probability) {
  return leaf(fmt::format("Dropout(p={})", probability),
              {{}, {}, [probability](const LeafState& state, const Tensors& inputs, const ForwardContext& context) {
                 const at::Tensor& x = inputs.at(0);
                 if (!context.training || probability == 0) return Tensors{x};
                 return Tensors{x * dropout_mask(x.sizes(), probability, state.layer_key, context).to(x.scalar_type())};
               }});
}

}  // namespace pipedream
