#include "cli/weights.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "pipedream/checkpoint/safetensors.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/model/import/import_model.hpp"

namespace pipedream::cli {
namespace {

constexpr std::pair<const char*, at::ScalarType> kTypes[] = {{"F32", at::kFloat}, {"F64", at::kDouble}, {"F16", at::kHalf},  {"BF16", at::kBFloat16}, {"I64", at::kLong},
                                                             {"I32", at::kInt},   {"I16", at::kShort},  {"I8", at::kChar},   {"U8", at::kByte},       {"BOOL", at::kBool}};

std::string type_name(at::ScalarType type) {
  for (const auto& [name, found] : kTypes)
    if (found == type) return name;
  throw UsageError(fmt::format("weights of type {} cannot be saved", at::toString(type)));
}

}  // namespace

Layers layers_with(const Model& model, const TrainResult& result) {
  Layers layers = create_layers(model, 0);
  std::map<std::string, at::Tensor> values;
  for (const auto* list : {&result.weights, &result.buffers})
    for (const auto& [name, tensor] : *list) values.emplace(name, tensor);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < layers.size(); ++i)
    for (const auto& tensors : {layers[i]->parameters(), layers[i]->buffers()})
      for (const auto& [name, tensor] : tensors)
        if (const auto found = values.find(model.nodes[i].name + "." + name); found != values.end()) at::Tensor(tensor).copy_(found->second);
  return layers;
}

void save_weights(const std::filesystem::path& path, const Model& model, const Layers& layers, const Metadata& metadata) {
  std::vector<at::Tensor> kept;
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : state_dict(model, layers)) {
    kept.push_back(tensor.cpu().contiguous());
    const at::Tensor& value = kept.back();
    entries.push_back({name, type_name(value.scalar_type()), value.sizes().vec(), std::string_view(static_cast<const char*>(value.data_ptr()), value.nbytes())});
  }
  write_safetensors(path, entries, metadata);
}

void load_weights(const std::filesystem::path& path, const Model& model, const Layers& layers) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::vector<NamedTensor> values;
  for (const SafetensorsEntry& entry : file.entries()) {
    const auto type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return entry.type == t.first; });
    if (type == std::end(kTypes)) throw InputError(path.string(), fmt::format("the tensor '{}' has the type {}, which this program does not know", entry.name, entry.type));
    at::Tensor tensor = at::empty(entry.shape, type->second);
    std::copy(entry.bytes.begin(), entry.bytes.end(), static_cast<char*>(tensor.data_ptr()));
    values.push_back({entry.name, tensor});
  }
  load_state_dict(model, layers, values, path.string());
}

Metadata read_metadata(const std::filesystem::path& path) { return SafetensorsFile::open(path).metadata(); }

}  // namespace pipedream::cli
