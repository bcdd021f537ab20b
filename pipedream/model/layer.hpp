#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pipedream {

using Tensors = std::vector<at::Tensor>;

enum class Precision;  // precision.hpp

/// What a forward may depend on besides its inputs and weights.
struct ForwardContext {
  bool training = true;
  std::uint64_t seed = 0;
  /// One key per row of the micro-batch: a function of (epoch, index in the data set). Dropout masks are functions of
  /// (seed, layer name, sample key), so they do not depend on how samples are grouped or where the layer runs.
  const std::vector<std::uint64_t>* samples = nullptr;
  /// False in a recomputation, and in evaluation: running statistics are left alone.
  bool update_buffers = true;
  Precision precision{};  ///< float32 by default
};

struct NamedTensor {
  std::string name;  ///< within its layer: "weight", "running_mean"
  at::Tensor tensor;
};

/// One instance of a layer: one weight version. Whatever can do this can be trained: a torch::nn module, a function, a node of an imported graph.
/// An instance is used by one thread at a time.
class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Runs the layer under autograd. Inputs and outputs have the batch as first dimension (a loss has none). Inputs must not be changed
  /// in place, because another stage may still be reading them.
  virtual Tensors forward(const Tensors& inputs, const ForwardContext& context) = 0;

  /// Trained parameters (leaf tensors that require grad) and buffers, each in a fixed order.
  [[nodiscard]] virtual std::vector<NamedTensor> parameters() const = 0;
  [[nodiscard]] virtual std::vector<NamedTensor> buffers() const = 0;

  /// A further instance with parameters of its own (equal values) and the same buffers: the slot of another weight version.
  [[nodiscard]] virtual std::unique_ptr<Layer> another_version() const = 0;

  /// Makes parameter `index` of this instance the given tensor: ties within a stage are made so.
  virtual void set_parameter(std::size_t index, const at::Tensor& parameter) = 0;
};

/// What an instance is created from. Initial weights are functions of (seed, layer name, parameter name) only.
struct LayerSeed {
  std::uint64_t seed = 0;
  std::string layer;  ///< name of the layer in its model
};
using LayerFactory = std::function<std::unique_ptr<Layer>(const LayerSeed&)>;

}  // namespace pipedream
