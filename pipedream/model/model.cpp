#include "pipedream/model/model.hpp"

#include <fmt/format.h>

#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

void check_reference(const Model& model, const std::string& reader, InputRef ref, int limit) {
  if (ref.is_model_input()) {
    PD_CHECK(ref.model_input_index() < static_cast<int>(model.inputs.size()), "'{}' reads model input {} of {}", reader, ref.model_input_index(),
             model.inputs.size());
    return;
  }
  PD_CHECK(ref.layer < limit, "'{}' reads layer {}, which is not before it", reader, ref.layer);
  const LayerNode& source = model.nodes[static_cast<std::size_t>(ref.layer)];
  PD_CHECK(ref.output >= 0 && ref.output < source.num_outputs, "'{}' reads output {} of '{}', which has {}", reader, ref.output, source.name,
           source.num_outputs);
}

void check_nodes(const Model& model) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const LayerNode& node = model.nodes[i];
    if (node.name.empty()) throw UsageError(fmt::format("layer {} of model '{}' has no name", i, model.name));
    if (!names.insert(node.name).second) throw UsageError(fmt::format("model '{}' has two layers named '{}'", model.name, node.name));
    if (!node.create) throw UsageError(fmt::format("layer '{}' of model '{}' has no factory", node.name, model.name));
    PD_CHECK(node.num_outputs >= 1, "layer '{}' has no outputs", node.name);
    for (const InputRef ref : node.inputs) check_reference(model, node.name, ref, static_cast<int>(i));
  }
}

// A layer that the loss does not depend on would be planned and run for nothing, and its weights would have no gradient.
void check_reaches_loss(const Model& model) {
  std::vector<bool> needed(model.nodes.size(), false);
  needed[static_cast<std::size_t>(model.loss)] = true;
  for (std::size_t i = model.nodes.size(); i-- > 0;) {
    if (!needed[i])
      throw UsageError(fmt::format("layer '{}' of model '{}' does not contribute to the loss", model.nodes[i].name, model.name), "remove it");
    for (const InputRef ref : model.nodes[i].inputs)
      if (!ref.is_model_input()) needed[static_cast<std::size_t>(ref.layer)] = true;
  }
}

void check_ties(const Model& model) {
  for (const WeightTie& tie : model.ties) {
    PD_CHECK(tie.places.size() >= 2, "a tie of {} place(s)", tie.places.size());
    std::set<std::pair<int, std::string>> seen;
    for (const WeightTie::Place& place : tie.places) {
      PD_CHECK(place.layer >= 0 && place.layer < static_cast<int>(model.nodes.size()), "a tie names layer {}", place.layer);
      PD_CHECK(seen.emplace(place.layer, place.parameter).second, "a tie names '{}' of layer {} twice", place.parameter, place.layer);
    }
  }
}

}  // namespace

void validate(const Model& model) {
  if (model.nodes.empty()) throw UsageError(fmt::format("model '{}' has no layers", model.name));
  check_nodes(model);
  const int count = static_cast<int>(model.nodes.size());
  if (model.loss < 0 || model.loss >= count) throw UsageError(fmt::format("model '{}' has no loss", model.name), "end it with a loss layer");
  PD_CHECK(model.prediction < count && model.target < static_cast<int>(model.inputs.size()), "model '{}': prediction or target out of range",
           model.name);
  check_reaches_loss(model);
  check_ties(model);
}

InputRef ModelBuilder::input(std::string name, std::vector<std::int64_t> shape, at::ScalarType dtype) {
  model_.inputs.push_back({std::move(name), std::move(shape), dtype});
  return InputRef::model_input(static_cast<int>(model_.inputs.size()) - 1);
}

InputRef ModelBuilder::add(std::string name, std::pair<std::string, LayerFactory> described_factory, std::vector<InputRef> inputs, int num_outputs) {
  model_.nodes.push_back({std::move(name), std::move(described_factory.first), std::move(described_factory.second), std::move(inputs), num_outputs});
  return {static_cast<int>(model_.nodes.size()) - 1, 0};
}

void ModelBuilder::tie(InputRef a, const std::string& parameter_a, InputRef b, const std::string& parameter_b) {
  for (WeightTie& tie : model_.ties)  // a third place joins the tie of the first
    for (const WeightTie::Place& place : tie.places)
      if (place.layer == a.layer && place.parameter == parameter_a) {
        tie.places.push_back({b.layer, parameter_b});
        return;
      }
  model_.ties.push_back({{{a.layer, parameter_a}, {b.layer, parameter_b}}});
}

Model ModelBuilder::finish(InputRef loss, InputRef prediction, InputRef target) {
  model_.loss = loss.layer;
  model_.prediction = prediction.is_model_input() ? -1 : prediction.layer;
  model_.target = target.is_model_input() ? target.model_input_index() : -1;
  validate(model_);
  return std::move(model_);
}

}  // namespace pipedream
