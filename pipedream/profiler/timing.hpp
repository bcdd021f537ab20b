#pragma once

#include <atomic>
#include <vector>

#include "pipedream/model/run.hpp"
#include "pipedream/profiler/profiler.hpp"

namespace pipedream {

/// Milliseconds of every layer in one forward and backward of the whole model.
struct LayerTimes {
  std::vector<double> forward, backward, update;
  double whole = 0;  ///< forward and backward
  double loss = 0;
};

enum class BackwardKind {
  Whole,      ///< gradients of inputs and weights
  InputsOnly  ///< parameters want no gradient; where that ends the chain of gradients, outputs are made to want one
};

/// Which layers have outputs that want a gradient in an ordinary backward.
[[nodiscard]] std::vector<bool> layers_with_gradient(const Model& model, const Layers& layers, const Tensors& inputs, ForwardContext context);

/// The layers of one copy, and how their parameters are stepped (an empty function: not at all).
struct MeasuredLayers {
  Layers layers;
  std::vector<LayerUpdate> updates;
};

/// One iteration, with an update after it where the backward was whole. Gradients are taken away after it, as between the steps of an asynchronous
/// pipeline.
[[nodiscard]] LayerTimes time_layers(const Model& model, const MeasuredLayers& measured, const Tensors& inputs, const ForwardContext& context,
                                     BackwardKind kind, const std::vector<bool>& with_gradient);

}  // namespace pipedream
