#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "pipedream/model/import/import_model.hpp"

namespace pipedream::testing {

/// What PyTorch computed from a fixture, by key: "input.0", "target", "train.loss", "train.fc.weight", "after.bn.running_mean".
using Reference = std::map<std::string, at::Tensor>;
Reference load_reference(const std::string& name);

/// Loss and gradients of one forward and backward, by state_dict key (the first alias of tied parameters).
struct Step {
  at::Tensor loss;
  std::map<std::string, at::Tensor> gradients;
};

/// The model's inputs out of a reference: its forward's, and the target.
Tensors inputs_of(const Model& model, const Reference& reference);

/// Runs a model layer by layer with every tensor between layers detached, as a pipeline does: gradients are carried by hand.
Step run_detached(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context);
/// Runs a model as one graph.
Step run_whole(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context);

/// |a - b| / |b| in L2 over all gradients together.
double difference(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b);
/// True if all gradients are bit by bit equal.
bool equal_bits(const Step& a, const Step& b);

}  // namespace pipedream::testing
