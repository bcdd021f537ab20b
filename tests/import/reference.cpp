#include "reference.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include "fixtures.hpp"
#include "pipedream/checkpoint/safetensors.hpp"

namespace pipedream::testing {
namespace {

at::ScalarType scalar_type(const std::string& type) {
  return type == "F32" ? at::kFloat : type == "F64" ? at::kDouble : type == "I64" ? at::kLong : at::kBool;
}

/// Gradients by key; ties give the sum under their first name.
std::map<std::string, at::Tensor> gradients_of(const Model& model, const Layers& layers) {
  std::map<std::string, at::Tensor> result;
  std::map<const void*, std::string> seen;
  for (const StateEntry& entry : model.state) {
    if (entry.layer < 0) continue;
    for (const NamedTensor& parameter : layers[static_cast<std::size_t>(entry.layer)]->parameters()) {
      if (parameter.name != entry.tensor || !parameter.tensor.grad().defined()) continue;
      if (!seen.emplace(parameter.tensor.unsafeGetTensorImpl(), entry.key).second) continue;
      result[entry.key] = parameter.tensor.grad().clone();
    }
  }
  return result;
}

void clear_gradients(const Layers& layers) {
  for (const auto& layer : layers) {
    for (const NamedTensor& parameter : layer->parameters()) parameter.tensor.mutable_grad() = at::Tensor();
  }
}

}  // namespace

Reference load_reference(const std::string& name) {
  Reference result;
  const SafetensorsFile file = SafetensorsFile::open(fixture(name + ".safetensors"));
  for (const SafetensorsEntry& entry : file.entries()) {
    at::Tensor tensor = at::empty(entry.shape, scalar_type(entry.type));
    if (!entry.bytes.empty()) std::memcpy(tensor.data_ptr(), entry.bytes.data(), entry.bytes.size());
    result.emplace(entry.name, tensor);
  }
  return result;
}

Tensors inputs_of(const Model& model, const Reference& reference) {
  Tensors inputs;
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    const auto at = reference.find("input." + std::to_string(i));
    inputs.push_back(at != reference.end() ? at->second : reference.at("target"));
  }
  return inputs;
}

Step run_whole(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context) {
  clear_gradients(layers);
  const at::Tensor loss = run(model, layers, inputs, context).loss;
  torch::autograd::backward({loss}, {});
  return {loss.detach(), gradients_of(model, layers)};
}

Step run_detached(const Model& model, const Layers& layers, const Tensors& inputs, const ForwardContext& context) {
  clear_gradients(layers);
  std::vector<Tensors> outputs, sent;  // as made, and as the next layer sees them
  for (std::size_t i = 0; i < layers.size(); ++i) {
    outputs.push_back(layers[i]->forward(gather_inputs(model.nodes[i], inputs, sent), context));
    Tensors copies;
    for (const at::Tensor& output : outputs.back()) {
      at::Tensor copy = output.detach().clone();
      if (output.requires_grad() && at::isFloatingType(output.scalar_type())) copy.requires_grad_();
      copies.push_back(copy);
    }
    sent.push_back(std::move(copies));
  }
  for (std::size_t i = layers.size(); i-- > 0;) {
    std::vector<at::Tensor> roots, gradients;
    for (std::size_t k = 0; k < outputs[i].size(); ++k) {
      if (!outputs[i][k].requires_grad()) continue;
      const bool is_loss = static_cast<int>(i) == model.loss && k == 0;
      const at::Tensor gradient = is_loss ? at::ones({}) : sent[i][k].grad();
      if (!gradient.defined()) continue;
      roots.push_back(outputs[i][k]);
      gradients.push_back(gradient);
    }
    if (!roots.empty()) torch::autograd::backward(roots, gradients);
  }
  return {outputs[static_cast<std::size_t>(model.loss)][0].detach(), gradients_of(model, layers)};
}

double difference(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  double distance = 0, size = 0;
  for (const auto& [key, value] : b) {
    const auto at = a.find(key);
    const at::Tensor other = at == a.end() ? at::zeros_like(value) : at->second;
    distance += (other - value).to(at::kDouble).square().sum().item<double>();
    size += value.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(distance / size);
}

bool equal_bits(const Step& a, const Step& b) {
  if (!a.loss.equal(b.loss) || a.gradients.size() != b.gradients.size()) return false;
  for (const auto& [key, value] : a.gradients) {
    const auto at = b.gradients.find(key);
    if (at == b.gradients.end() || !value.equal(at->second)) return false;
  }
  return true;
}

}  // namespace pipedream::testing
