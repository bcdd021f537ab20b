#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/model/initial_weights.hpp"
#include "pipedream/model/layer.hpp"

namespace pipedream {

/// What ModelBuilder::add takes: a description ("Linear(784, 10)") and how to create an instance.
using LayerRecipe = std::pair<std::string, LayerFactory>;

/// What the forward of a leaf layer sees of its instance.
struct LeafState {
  const Tensors& parameters;
  const Tensors& buffers;
  std::uint64_t layer_key;  ///< key_of(layer name): a coordinate of dropout masks
};
using LeafForward = std::function<Tensors(const LeafState&, const Tensors& inputs, const ForwardContext&)>;

/// A layer as plain values: what it holds and a function. The function must be pure but for updates of buffers.
struct LeafDefinition {
  std::vector<ParameterSpec> parameters;
  std::vector<ParameterSpec> buffers;
  LeafForward forward;
};

/// A layer with weights of its own, computed by a function.
[[nodiscard]] LayerRecipe leaf(std::string description, LeafDefinition definition);

/// A layer without weights. The second form is for functions of tensors alone.
[[nodiscard]] LayerRecipe function(std::string description, std::function<Tensors(const Tensors&, const ForwardContext&)> forward);
[[nodiscard]] LayerRecipe function(std::string description, std::function<at::Tensor(const Tensors&)> forward);

}  // namespace pipedream
