#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <map>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/import_model.hpp"

namespace pipedream {
namespace {

std::vector<StateEntry> state_of(const Model& model, const Layers& layers) {
  if (!model.state.empty()) return model.state;
  std::vector<StateEntry> state;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] == nullptr) continue;
    for (const auto& tensors : {layers[i]->parameters(), layers[i]->buffers()}) {
      for (const NamedTensor& tensor : tensors) state.push_back({model.nodes[i].name + "." + tensor.name, static_cast<int>(i), tensor.name, {}});
    }
  }
  return state;
}

/// The tensor an entry means; undefined if its layer is on another stage.
at::Tensor tensor_of(const StateEntry& entry, const Layers& layers) {
  if (entry.layer < 0) return entry.value;
  const auto& layer = layers[static_cast<std::size_t>(entry.layer)];
  if (layer == nullptr) return {};
  for (const auto& tensors : {layer->parameters(), layer->buffers()}) {
    for (const NamedTensor& tensor : tensors) {
      if (tensor.name == entry.tensor) return tensor.tensor;
    }
  }
  throw InternalError(fmt::format("{} is {} of a layer that has no such tensor", entry.key, entry.tensor));
}

}  // namespace

std::vector<NamedTensor> state_dict(const Model& model, const Layers& layers) {
  std::vector<NamedTensor> result;
  std::set<std::string> done;
  for (const StateEntry& entry : state_of(model, layers)) {
    if (done.contains(entry.key)) continue;
    const at::Tensor tensor = tensor_of(entry, layers);
    if (tensor.defined() && done.insert(entry.key).second) result.push_back({entry.key, tensor.detach()});
  }
  return result;
}

void load_state_dict(const Model& model, const Layers& layers, const std::vector<NamedTensor>& values, const std::string& place) {
  std::map<std::string, at::Tensor> given;
  for (const NamedTensor& value : values) given.emplace(value.name, value.tensor);
  const c10::NoGradGuard no_grad;
  std::set<std::string> known;
  for (const StateEntry& entry : state_of(model, layers)) {
    known.insert(entry.key);
    const auto value = given.find(entry.key);
    const at::Tensor own = tensor_of(entry, layers);
    if (!own.defined()) continue;
    if (value == given.end()) throw InputError(place, fmt::format("there are no values for {}", entry.key), "give the weights of this model");
    if (value->second.sizes() != own.sizes() || value->second.scalar_type() != own.scalar_type()) {
      throw InputError(place,
                       fmt::format("{} is {}{}, the model has {}{}", entry.key, c10::toString(value->second.scalar_type()),
                                   c10::str(value->second.sizes()), c10::toString(own.scalar_type()), c10::str(own.sizes())),
                       "give the weights of this model");
    }
    if (entry.layer >= 0) own.copy_(value->second);
  }
  for (const auto& [key, value] : given) {
    if (!known.contains(key)) throw InputError(place, fmt::format("the model has no {}", key), "give the weights of this model");
  }
}

}  // namespace pipedream
