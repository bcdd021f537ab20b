#include "pipedream/model/initial_weights.hpp"

#include <ATen/ops/empty.h>

#include <cmath>
#include <numbers>

#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

// 64 random bits give two numbers; the upper 24 bits of each half fill a float's mantissa.
float upper_uniform(std::uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1.0p-24f; }
float lower_uniform(std::uint64_t bits) { return static_cast<float>((bits & 0xffffffffULL) >> 8) * 0x1.0p-24f; }

void fill_uniform(float* values, std::int64_t count, std::uint64_t key, float bound) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint64_t bits = random_bits(key, static_cast<std::uint64_t>(i));
    values[i] = (2.0F * upper_uniform(bits) - 1.0F) * bound;
    if (i + 1 < count) values[i + 1] = (2.0F * lower_uniform(bits) - 1.0F) * bound;
  }
}

// Box-Muller: two uniform numbers give two normal ones.
void fill_normal(float* values, std::int64_t count, std::uint64_t key, float deviation) {
  constexpr float kTwoPi = 2.0F * std::numbers::pi_v<float>;
  for (std::int64_t i = 0; i < count; i += 2) {
    const std::uint64_t bits = random_bits(key, static_cast<std::uint64_t>(i));
    const float radius = deviation * std::sqrt(-2.0F * std::log(1.0F - upper_uniform(bits)));
    const float angle = kTwoPi * lower_uniform(bits);
    values[i] = radius * std::cos(angle);
    if (i + 1 < count) values[i + 1] = radius * std::sin(angle);
  }
}

}  // namespace

Initial Initial::kaiming_uniform(std::int64_t fan_in) { return uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }
Initial Initial::kaiming_normal(std::int64_t fan_out) { return normal(std::sqrt(2.0 / static_cast<double>(fan_out))); }

at::Tensor initial_values(const ParameterSpec& spec, const LayerSeed& seed) {
  at::Tensor tensor = at::empty(spec.shape, at::TensorOptions().dtype(at::kFloat));
  auto* values = tensor.data_ptr<float>();
  const std::uint64_t key = combine_keys(combine_keys(mix_bits(seed.seed), key_of(seed.layer)), key_of(spec.name));
  const auto scale = static_cast<float>(spec.initial.value);
  switch (spec.initial.kind) {
    case Initial::Kind::Constant:
      std::fill_n(values, tensor.numel(), scale);
      break;
    case Initial::Kind::Uniform:
      fill_uniform(values, tensor.numel(), key, scale);
      break;
    case Initial::Kind::Normal:
      fill_normal(values, tensor.numel(), key, scale);
      break;
  }
  return tensor;
}

}  // namespace pipedream
