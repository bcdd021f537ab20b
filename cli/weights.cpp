#include "cli/weights.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "pipedream/checkpoint/safetensors.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/model/import/import_model.hpp"
#include "pipedream/model/run.hpp"

namespace pipedream::cli {
namespace {

constexpr std::pair<at::ScalarType, const char*> kTypes[] = {{at::kFloat, "F32"}, {at::kDouble, "F64"}, {at::kHalf, "F16"},  {at::kBFloat16, "BF16"},
                                                             {at::kLong, "I64"},  {at::kInt, "I32"},    {at::kShort, "I16"}, {at::kChar, "I8"},
                                                             {at::kByte, "U8"},   {at::kBool, "BOOL"}};

std::string type_name(at::ScalarType type) {
  for (const auto& [own, name] : kTypes) {
    if (own == type) return name;
  }
  throw UsageError(fmt::format("weights of type {} cannot be saved", c10::toString(type)));
}

/// The model's entries; of models that are not from a file they come from an instance of every layer.
std::vector<StateEntry> entries_of(const Model& model) {
  if (!model.state.empty()) return model.state;
  std::vector<StateEntry> entries;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const auto layer = model.nodes[i].create({0, model.nodes[i].name});
    for (const auto& tensors : {layer->parameters(), layer->buffers()}) {
      for (const NamedTensor& tensor : tensors) entries.push_back({model.nodes[i].name + "." + tensor.name, static_cast<int>(i), tensor.name, {}});
    }
  }
  return entries;
}

/// Copies the file's values into the tensors of a new instance.
void fill(const SafetensorsFile& file, const std::map<std::string, std::string>& keys, Layer& layer) {
  const c10::NoGradGuard no_grad;
  for (const auto& tensors : {layer.parameters(), layer.buffers()}) {
    for (const NamedTensor& tensor : tensors) {
      const auto key = keys.find(tensor.name);
      if (key == keys.end()) continue;  // buffers outside the state_dict
      const SafetensorsEntry* entry = file.find(key->second);
      const std::string& place = file.file()->name();
      if (entry == nullptr) throw InputError(place, fmt::format("there are no values for {}", key->second), "give the weights of this model");
      if (entry->type != type_name(tensor.tensor.scalar_type()) || at::IntArrayRef(entry->shape) != tensor.tensor.sizes()) {
        throw InputError(place,
                         fmt::format("{} is {}{}, the model has {}{}", entry->name, entry->type, fmt::format("[{}]", fmt::join(entry->shape, ", ")),
                                     type_name(tensor.tensor.scalar_type()), fmt::format("[{}]", fmt::join(tensor.tensor.sizes(), ", "))),
                         "give the weights of this model");
      }
      const at::Tensor values = at::empty(tensor.tensor.sizes(), tensor.tensor.options().requires_grad(false));  // row by row, as in the file
      std::copy(entry->bytes.begin(), entry->bytes.end(), static_cast<char*>(values.data_ptr()));
      tensor.tensor.copy_(values);
    }
  }
}

}  // namespace

void save_weights(const Model& model, const TrainResult& result, const std::string& file, Metadata metadata) {
  std::map<std::string, at::Tensor> values;
  for (const auto* list : {&result.weights, &result.buffers})
    for (const auto& [name, tensor] : *list) values.emplace(name, tensor);
  // Through instances of all layers, where ties hold: a tied weight is given once and has several keys.
  const Layers layers = create_layers(model, 0);
  {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < layers.size(); ++i)
      for (const auto& tensors : {layers[i]->parameters(), layers[i]->buffers()})
        for (const auto& [name, tensor] : tensors)
          if (const auto found = values.find(model.nodes[i].name + "." + name); found != values.end()) at::Tensor(tensor).copy_(found->second);
  }
  std::vector<at::Tensor> kept;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : state_dict(model, layers)) {
    kept.push_back(tensor.cpu().contiguous());
    const at::Tensor& value = kept.back();
    entries.push_back({name, type_name(value.scalar_type()), value.sizes().vec(), {static_cast<const char*>(value.data_ptr()), value.nbytes()}});
  }
  metadata["format"] = "pt";
  write_safetensors(file, entries, metadata);
}

Metadata read_metadata(const std::string& file) { return SafetensorsFile::open(file).metadata(); }

void start_from_weights(Model& model, const std::string& file) {
  const auto values = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(file));
  std::vector<std::map<std::string, std::string>> keys(model.nodes.size());
  std::set<std::string> known;
  for (const StateEntry& entry : entries_of(model)) {
    known.insert(entry.key);
    if (entry.layer >= 0) keys[static_cast<std::size_t>(entry.layer)].emplace(entry.tensor, entry.key);
    if (values->find(entry.key) == nullptr)
      throw InputError(file, fmt::format("there are no values for {}", entry.key), "give the weights of this model");
  }
  for (const SafetensorsEntry& entry : values->entries()) {
    if (!known.contains(entry.name)) throw InputError(file, fmt::format("the model has no {}", entry.name), "give the weights of this model");
  }
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    model.nodes[i].create = [create = model.nodes[i].create, values, of_layer = keys[i]](const LayerSeed& seed) {
      auto layer = create(seed);
      fill(*values, of_layer, *layer);
      return layer;
    };
    (void)model.nodes[i].create({0, model.nodes[i].name});  // complains now, not on a rank
  }
}

}  // namespace pipedream::cli
