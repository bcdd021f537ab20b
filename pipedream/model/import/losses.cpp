#include "pipedream/model/import/losses.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/aliases.hpp"
#include "pipedream/model/import/import_model.hpp"
#include "pipedream/model/layers.hpp"

namespace pipedream {
namespace {

const ProgramStep* maker_of(const Program& program, int value) {
  for (const ProgramStep& step : program.steps) {
    const std::vector<int> writes = step.writes();
    if (std::find(writes.begin(), writes.end(), value) != writes.end()) return &step;
  }
  return nullptr;
}

const TensorType* type_of(const Program& program, int value) {
  const auto& type = program.values[static_cast<std::size_t>(value)].type;
  return type ? &*type : nullptr;
}

/// Follows changes of shape back to what they were made from, as far as `accept` says no.
template <typename Accept>
int trace_back(const Program& program, int value, const Accept& accept) {
  static const std::set<std::string> kReshapes{"view", "reshape", "flatten", "contiguous", "squeeze", "to", "type_as"};
  while (value >= 0 && !accept(value)) {
    const ProgramStep* step = maker_of(program, value);
    if (step == nullptr || !kReshapes.contains(operator_name(*step))) return -1;
    value = step->first_value();
  }
  return value;
}

LossInFile describe_loss(const Program& program, int loss) {
  LossInFile result;
  result.loss = loss;
  const ProgramStep* step = maker_of(program, loss);
  if (step == nullptr || step->arguments.size() < 2) return result;
  const Argument& second = step->arguments[1].value;
  const auto input_index = [&](int id) {
    for (std::size_t i = 0; i < program.inputs.size(); ++i) {
      if (program.inputs[i].value == id) return static_cast<int>(i);
    }
    return -1;
  };
  const int target = second.is_value() ? trace_back(program, static_cast<int>(second.integer), [&](int id) { return input_index(id) >= 0; }) : -1;
  if (target < 0) return result;
  result.target = input_index(target);
  const TensorType* target_type = type_of(program, target);
  const std::string name = operator_name(*step);
  if ((name != "cross_entropy_loss" && name != "nll_loss" && name != "nll_loss_nd") || target_type == nullptr || is_floating(target_type->element))
    return result;
  result.prediction = trace_back(program, step->first_value(), [&](int id) {
    const TensorType* type = type_of(program, id);
    if (type == nullptr || type->sizes.size() != target_type->sizes.size() + 1) return false;
    return std::equal(target_type->sizes.begin(), target_type->sizes.end(), type->sizes.begin());
  });
  return result;
}

at::Tensor mean_squared(const Tensors& inputs) { return at::mse_loss(inputs.at(0), inputs.at(1)); }
at::Tensor mean_absolute(const Tensors& inputs) { return at::l1_loss(inputs.at(0), inputs.at(1)); }
at::Tensor binary_cross_entropy(const Tensors& inputs) { return at::binary_cross_entropy_with_logits(inputs.at(0), inputs.at(1)); }
at::Tensor negative_likelihood(const Tensors& inputs) {
  const at::Tensor& x = inputs.at(0);
  return at::nll_loss(x.reshape({-1, x.size(-1)}), inputs.at(1).reshape(-1));
}

}  // namespace

std::optional<LossInFile> find_loss(const Program& program) {
  for (const ProgramOutput& output : program.outputs) {
    if (output.value < 0) continue;
    const TensorType* type = type_of(program, output.value);
    if (output.is_loss || (type != nullptr && type->sizes.empty() && is_floating(type->element))) return describe_loss(program, output.value);
  }
  return std::nullopt;
}

std::vector<std::pair<std::string, std::string>> list_losses() {
  return {{"cross-entropy", "scores [batch, ..., classes] and integer targets [batch, ...]"},
          {"nll", "log-probabilities [batch, ..., classes] and integer targets [batch, ...]"},
          {"mse", "mean squared difference to a target of the output's shape"},
          {"l1", "mean absolute difference to a target of the output's shape"},
          {"bce", "binary cross-entropy of scores with targets in [0, 1] of the output's shape"}};
}

AddedLoss make_loss(const std::string& name, const TensorType& output) {
  std::vector<std::int64_t> shape;
  for (std::size_t i = 1; i < output.sizes.size(); ++i) shape.push_back(output.sizes[i].value);
  const bool is_classification = name == "cross-entropy" || name == "nll";
  if (is_classification && shape.empty())
    throw UsageError(fmt::format("the loss {} needs an output [batch, ..., classes], the model gives {}", name, print_type(output)));
  if (is_classification) shape.pop_back();
  const TensorSpec target{"target", shape, is_classification ? at::kLong : at::kFloat};
  if (name == "cross-entropy") return {cross_entropy(), target, true};
  if (name == "nll") return {function("NLLLoss()", negative_likelihood), target, true};
  if (name == "mse") return {function("MSELoss()", mean_squared), target, false};
  if (name == "l1") return {function("L1Loss()", mean_absolute), target, false};
  if (name == "bce") return {function("BCEWithLogitsLoss()", binary_cross_entropy), target, false};
  std::string known;
  for (const auto& [loss, text] : list_losses()) known += (known.empty() ? "" : ", ") + loss;
  throw UsageError(fmt::format("unknown loss \"{}\"", name), "known: " + known);
}

}  // namespace pipedream
