#include "pipedream/model/run.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/precision.hpp"

namespace pipedream {
namespace {

std::size_t parameter_index(const Model& model, const Layers& layers, const WeightTie::Place& place) {
  const std::vector<NamedTensor> parameters = layers[static_cast<std::size_t>(place.layer)]->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == place.parameter) return i;
  throw UsageError(fmt::format("model '{}' ties parameter '{}' of layer '{}', which has no such parameter", model.name, place.parameter,
                               model.nodes[static_cast<std::size_t>(place.layer)].name));
}

std::int64_t bytes_of(const std::vector<NamedTensor>& tensors) {
  std::int64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.tensor.nbytes());
  return bytes;
}

// For every layer, the last layer that reads it (itself if none).
std::vector<std::size_t> last_readers(const Model& model) {
  std::vector<std::size_t> last(model.nodes.size());
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    last[i] = i;
    for (const InputRef ref : model.nodes[i].inputs)
      if (!ref.is_model_input()) last[static_cast<std::size_t>(ref.layer)] = i;
  }
  return last;
}

}  // namespace

void apply_ties(const Model& model, const Layers& layers) {
  for (const WeightTie& tie : model.ties) {
    at::Tensor shared;
    for (const WeightTie::Place& place : tie.places) {
      Layer* layer = layers[static_cast<std::size_t>(place.layer)].get();
      if (!layer) continue;
      const std::size_t index = parameter_index(model, layers, place);
      const at::Tensor own = layer->parameters()[index].tensor;
      if (shared.defined() && own.sizes() != shared.sizes())
        throw UsageError(fmt::format("model '{}' ties '{}' of layer '{}' to a parameter of another shape", model.name, place.parameter,
                                     model.nodes[static_cast<std::size_t>(place.layer)].name));
      if (shared.defined()) layer->set_parameter(index, shared);
      else shared = own;
    }
  }
}

Layers create_layers(const Model& model, std::uint64_t seed) {
  Layers layers;
  for (const LayerNode& node : model.nodes) layers.push_back(node.create({seed, node.name}));
  apply_ties(model, layers);
  return layers;
}

Layers another_version(const Model& model, const Layers& layers) {
  Layers others;
  for (const auto& layer : layers) others.push_back(layer->another_version());
  apply_ties(model, others);
  return others;
}

Tensors gather_inputs(const LayerNode& node, const Tensors& model_inputs, const std::vector<Tensors>& outputs) {
  Tensors inputs;
  for (const InputRef ref : node.inputs)
    inputs.push_back(ref.is_model_input() ? model_inputs.at(static_cast<std::size_t>(ref.model_input_index()))
                                          : outputs[static_cast<std::size_t>(ref.layer)].at(static_cast<std::size_t>(ref.output)));
  return inputs;
}

at::Tensor run_layers(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context,
                      const std::function<void(std::size_t layer)>& before, const std::function<void(std::size_t layer, Tensors& outputs)>& after) {
  const std::vector<std::size_t> last = last_readers(model);
  std::vector<Tensors> outputs(model.nodes.size());
  at::Tensor loss;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const LayerNode& node = model.nodes[i];
    if (before) before(i);
    outputs[i] = run_layer(*layers[i], gather_inputs(node, inputs, outputs), context, static_cast<int>(i) == model.loss);
    PD_CHECK(static_cast<int>(outputs[i].size()) == node.num_outputs, "layer '{}' gave {} outputs, declared are {}", node.name, outputs[i].size(),
             node.num_outputs);
    if (after) after(i, outputs[i]);
    if (static_cast<int>(i) == model.loss) loss = outputs[i][0];
    for (const InputRef ref : node.inputs)
      if (!ref.is_model_input() && last[static_cast<std::size_t>(ref.layer)] == i) outputs[static_cast<std::size_t>(ref.layer)].clear();
  }
  if (loss.numel() != 1) throw UsageError(fmt::format("the loss of model '{}' has {} elements, not one", model.name, loss.numel()));
  return loss;
}

ModelOutputs run(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context) {
  ModelOutputs result;
  result.loss = run_layers(model, layers, inputs, context, {}, [&](std::size_t layer, Tensors& outputs) {
    if (static_cast<int>(layer) == model.prediction) result.prediction = outputs[0].detach();
  });
  return result;
}

std::vector<NamedTensor> distinct_parameters(const Model& model, const Layers& layers) {
  std::vector<NamedTensor> result;
  std::set<const void*> seen;
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const NamedTensor& parameter : layers[i]->parameters())
      if (seen.insert(parameter.tensor.unsafeGetTensorImpl()).second)
        result.push_back({model.nodes[i].name + "." + parameter.name, parameter.tensor});
  return result;
}

std::int64_t count_elements(const std::vector<NamedTensor>& tensors) {
  std::int64_t count = 0;
  for (const NamedTensor& tensor : tensors) count += tensor.tensor.numel();
  return count;
}

std::int64_t parameter_bytes(const Layer& layer) { return bytes_of(layer.parameters()); }
std::int64_t buffer_bytes(const Layer& layer) { return bytes_of(layer.buffers()); }

}  // namespace pipedream
