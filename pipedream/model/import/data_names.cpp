#include <fmt/format.h>

#include <algorithm>

#include "pipedream/model/import/import_model.hpp"

namespace pipedream {
namespace {

/// The model's input of that name, null if it has none.
const TensorSpec* find_input(const Model& model, const std::string& name) {
  const auto at = std::find_if(model.inputs.begin(), model.inputs.end(), [&](const TensorSpec& input) { return input.name == name; });
  return at == model.inputs.end() ? nullptr : &*at;
}

/// The input of the loss that comes straight from the data.
int target_of(const Model& model) {
  if (model.target >= 0) return model.target;
  for (const InputRef& ref : model.nodes[static_cast<std::size_t>(model.loss)].inputs) {
    if (ref.is_model_input()) return ref.model_input_index();
  }
  return -1;
}

std::int64_t at_most(std::int64_t limit, std::int64_t usual) { return limit > 0 ? std::min(limit, usual) : usual; }

}  // namespace

void name_inputs_for_data(Model& model) {
  const int target = target_of(model);
  for (std::size_t i = 0; i < model.inputs.size(); ++i) {
    TensorSpec& input = model.inputs[i];
    const bool is_image = input.dtype == at::kFloat && input.shape.size() == 3, is_tokens = input.dtype == at::kLong && input.shape.size() == 1;
    const std::string name = static_cast<int>(i) == target ? "target" : is_image ? "image" : is_tokens ? "tokens" : input.name;
    if (find_input(model, name) == nullptr) input.name = name;
  }
}

std::string synthetic_data_spec(const Model& model) {
  const TensorSpec *image = find_input(model, "image"), *tokens = find_input(model, "tokens"), *target = find_input(model, "target");
  const bool is_pair = model.inputs.size() == 2 && target != nullptr && target->dtype == at::kLong;
  if (is_pair && image != nullptr && target->shape.empty()) {
    return fmt::format("synthetic-images:channels={},size={},classes={}", image->shape[0], image->shape[1],
                       std::max<std::int64_t>(2, at_most(target->limit, 10)));
  }
  if (is_pair && tokens != nullptr && target->shape == tokens->shape) {
    return fmt::format("synthetic-tokens:vocabulary={}", std::max<std::int64_t>(2, std::min(at_most(tokens->limit, 64), at_most(target->limit, 64))));
  }
  std::int64_t limit = 64;
  for (const TensorSpec& input : model.inputs) limit = at_most(input.limit, limit);
  return fmt::format("synthetic:limit={}", limit);
}

}  // namespace pipedream
