#include "pipedream/model/import/initial_by_class.hpp"

#include <algorithm>
#include <cmath>

namespace pipedream {
namespace {

std::string last_part(const std::string& text) { return text.substr(text.rfind('.') + 1); }
std::string parent_of(const std::string& key) {
  const std::size_t dot = key.rfind('.');
  return dot == std::string::npos ? "" : key.substr(0, dot);
}

/// Inputs of one output: the product of all sizes but the first.
std::int64_t fan_in_of(const std::vector<std::int64_t>& shape) {
  std::int64_t result = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) result *= shape[i];
  return std::max<std::int64_t>(result, 1);
}

/// torch.nn.init.xavier_uniform_ of a matrix.
Initial xavier_uniform(const std::vector<std::int64_t>& shape) {
  return Initial::uniform(std::sqrt(6.0 / static_cast<double>(fan_in_of(shape) + (shape.empty() ? 1 : shape[0]))));
}

/// Class of the module that owns a parameter, or of the nearest module above it that has steps of its own.
std::string owner_class(const std::map<std::string, std::string>& classes, const std::string& key) {
  for (std::string path = parent_of(key);; path = parent_of(path)) {
    const auto at = classes.find(path);
    if (at != classes.end()) return at->second;
    if (path.empty()) return "";
  }
}

Initial of_attention(const std::string& key, const std::vector<std::int64_t>& shape) {
  if (key.ends_with("out_proj.weight")) return Initial::kaiming_uniform(fan_in_of(shape));
  if (last_part(key) == "bias_k" || last_part(key) == "bias_v") return Initial::normal(std::sqrt(2.0 / static_cast<double>(fan_in_of(shape) + 1)));
  if (key.ends_with("bias")) return Initial::constant(0);
  return xavier_uniform(shape);
}

Initial by_shape(const std::string& key, const std::vector<std::int64_t>& shape) {
  if (last_part(key).find("bias") != std::string::npos) return Initial::constant(0);
  if (shape.size() < 2) return Initial::constant(1);
  return Initial::kaiming_uniform(fan_in_of(shape));
}

}  // namespace

std::map<std::string, std::string> module_classes(const Program& program) {
  std::map<std::string, std::string> classes;
  for (const ProgramStep& step : program.steps) {
    for (const ModuleEntry& entry : step.modules) classes.emplace(entry.path, last_part(entry.type));
  }
  return classes;
}

Initial initial_of_parameter(const std::map<std::string, std::string>& classes, const std::string& key, const std::vector<std::int64_t>& shape,
                             const std::optional<std::vector<std::int64_t>>& weight_shape) {
  const std::string type = owner_class(classes, key), name = last_part(key);
  const bool is_weight = name == "weight", is_bias = name == "bias";
  if (type == "MultiheadAttention") return of_attention(key, shape);
  const bool is_linear = type.ends_with("Linear") || type.starts_with("Conv") || type.starts_with("LazyConv");
  if (is_linear && is_weight) return Initial::kaiming_uniform(fan_in_of(shape));
  if (is_linear && is_bias && weight_shape) return Initial::kaiming_uniform(fan_in_of(*weight_shape));
  if (type.find("Norm") != std::string::npos && (is_weight || is_bias)) return Initial::constant(is_weight ? 1 : 0);
  if (type.starts_with("Embedding") && is_weight) return Initial::normal(1);
  if (type == "PReLU") return Initial::constant(0.25);
  const std::int64_t gates = type.starts_with("LSTM") ? 4 : type.starts_with("GRU") ? 3 : type.starts_with("RNN") ? 1 : 0;
  if (gates > 0 && !shape.empty()) return Initial::uniform(1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(shape[0] / gates, 1))));
  return by_shape(key, shape);
}

std::optional<double> initial_of_buffer(const std::string& key) {
  const std::string name = last_part(key);
  if (name == "running_mean" || name == "num_batches_tracked") return 0.0;
  if (name == "running_var") return 1.0;
  return std::nullopt;
}

}  // namespace pipedream
