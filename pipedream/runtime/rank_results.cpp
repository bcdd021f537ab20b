#include "pipedream/runtime/rank_results.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

/// A tied parameter counts once, at its first place.
bool is_copy_of_tie(const Model& model, const std::string& name) {
  for (const WeightTie& tie : model.ties)
    for (std::size_t i = 1; i < tie.places.size(); ++i)
      if (model.nodes[static_cast<std::size_t>(tie.places[i].layer)].name + "." + tie.places[i].parameter == name) return true;
  return false;
}

/// Type, shape and values of a tensor.
void put_values(ByteWriter& writer, const at::Tensor& given) {
  const at::Tensor tensor = given.detach().cpu().contiguous();
  writer.put(static_cast<int>(tensor.scalar_type()));
  writer.put(tensor.sizes().vec());
  writer.put(std::string_view(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()));
}

at::Tensor get_values(ByteReader& reader) {
  const auto type = static_cast<at::ScalarType>(reader.get<int>());
  const auto sizes = reader.get_vector<std::int64_t>();
  const std::string values = reader.get_text();
  at::Tensor tensor = at::empty(sizes, type);
  PD_CHECK(values.size() == tensor.nbytes());
  std::copy(values.begin(), values.end(), static_cast<char*>(tensor.data_ptr()));
  return tensor;
}

/// A tensor with its node in the model, whether it is a buffer, name, type, shape and values.
void put_tensor(ByteWriter& writer, int node, bool is_buffer, const std::string& name, const at::Tensor& given) {
  writer.put(node);
  writer.put(is_buffer);
  writer.put(std::string_view(name));
  put_values(writer, given);
}

}  // namespace

void put_weights(ByteWriter& writer, const Model& model, Stage& stage) {
  const auto& names = stage.versions().parameter_names();
  const auto& nodes = stage.versions().parameter_nodes();
  auto& newest = stage.versions().at(stage.versions().newest());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!is_copy_of_tie(model, names[i])) put_tensor(writer, nodes[i], false, names[i], newest.parameters[i]);
  for (const int node : stage.layers().nodes)
    for (const auto& [name, tensor] : newest.layers[static_cast<std::size_t>(node)]->buffers())
      put_tensor(writer, node, true, model.nodes[static_cast<std::size_t>(node)].name + "." + name, tensor);
  writer.put(-1);
}

void get_weights(ByteReader& reader, NodeWeights& weights, NodeWeights& buffers) {
  for (int node = 0; (node = reader.get<int>()) >= 0;) {
    const bool is_buffer = reader.get<bool>();
    NamedWeight weight;
    weight.name = reader.get_text();
    weight.tensor = get_values(reader);
    (is_buffer ? buffers : weights).emplace_back(node, std::move(weight));
  }
}

void put_gradients(ByteWriter& writer, const std::vector<StepGradient>& gradients) {
  writer.put(gradients.size());
  for (const auto& gradient : gradients) {
    writer.put(std::string_view(gradient.name));
    writer.put(gradient.step);
    writer.put(gradient.gradient.defined());
    if (gradient.gradient.defined()) put_values(writer, gradient.gradient);
  }
}

void get_gradients(ByteReader& reader, std::vector<StepGradient>& gradients) {
  for (auto count = reader.get<std::size_t>(); count > 0; --count) {
    StepGradient gradient;
    gradient.name = reader.get_text();
    gradient.step = reader.get<std::int64_t>();
    if (reader.get<bool>()) gradient.gradient = get_values(reader);
    gradients.push_back(std::move(gradient));
  }
}

std::vector<NamedWeight> in_order_of_layers(NodeWeights weights) {
  std::stable_sort(weights.begin(), weights.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NamedWeight> result;
  for (auto& [node, weight] : weights) result.push_back(std::move(weight));
  return result;
}

void put_result(ByteWriter& writer, const RankResult& result) {
  writer.put(result.rank);
  writer.put(result.stages);
  for (const double value : {result.compute_ms, result.idle_ms, result.send_wait_ms, result.receive_wait_ms, result.reduce_ms}) writer.put(value);
  for (const std::int64_t value : {result.peak_memory_bytes, result.bytes_sent, result.training_bytes_sent}) writer.put(value);
  writer.put(result.versions);
}

RankResult get_result(ByteReader& reader) {
  RankResult result;
  result.rank = reader.get<int>();
  result.stages = reader.get_vector<int>();
  for (double* value : {&result.compute_ms, &result.idle_ms, &result.send_wait_ms, &result.receive_wait_ms, &result.reduce_ms})
    *value = reader.get<double>();
  for (std::int64_t* value : {&result.peak_memory_bytes, &result.bytes_sent, &result.training_bytes_sent}) *value = reader.get<std::int64_t>();
  result.versions = reader.get<int>();
  return result;
}

}  // namespace pipedream
