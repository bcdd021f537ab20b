#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/model/layer.hpp"

namespace pipedream {

/// Distribution of the initial values of a parameter or buffer.
struct Initial {
  enum class Kind { Constant, Uniform, Normal };
  Kind kind = Kind::Constant;
  double value = 0;  ///< the constant, the bound of [-bound, bound), or the standard deviation (mean 0)

  [[nodiscard]] static Initial constant(double value) { return {Kind::Constant, value}; }
  [[nodiscard]] static Initial uniform(double bound) { return {Kind::Uniform, bound}; }
  [[nodiscard]] static Initial normal(double deviation) { return {Kind::Normal, deviation}; }
  /// torch's default of linear and convolution layers, kaiming_uniform_(a = sqrt(5)): bound 1 / sqrt(fan_in); also for their biases.
  [[nodiscard]] static Initial kaiming_uniform(std::int64_t fan_in);
  /// kaiming_normal_(mode = "fan_out", nonlinearity = "relu"): deviation sqrt(2 / fan_out) (He et al. 2015), as torchvision's VGG and ResNet.
  [[nodiscard]] static Initial kaiming_normal(std::int64_t fan_out);
};

struct ParameterSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  Initial initial;
};

/// A float tensor whose element n is a function of (seed, layer name, parameter name, n) only: it does not depend on where, when or in
/// which order layers are created.
[[nodiscard]] at::Tensor initial_values(const ParameterSpec& spec, const LayerSeed& seed);

}  // namespace pipedream
