#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "pipedream/model/import/program.hpp"
#include "pipedream/model/initial_weights.hpp"

/// Initial weights of models saved without any, as PyTorch's modules would draw them.
namespace pipedream {

/// Class of the module at each path of a program: "h.0.attn.c_attn" -> "Linear".
[[nodiscard]] std::map<std::string, std::string> module_classes(const Program& program);

/// How a parameter is drawn: by the class of the module that owns it (reset_parameters of torch.nn), else by its name and shape: biases 0, vectors
/// 1, matrices uniform in +-1/sqrt(fan_in).
/// @param weight_shape shape of the sibling "weight", from which biases take their fan_in
[[nodiscard]] Initial initial_of_parameter(const std::map<std::string, std::string>& classes, const std::string& key,
                                           const std::vector<std::int64_t>& shape, const std::optional<std::vector<std::int64_t>>& weight_shape);

/// Value of a buffer of a known kind (statistics of batch norm); nothing for others, whose values nobody can guess.
[[nodiscard]] std::optional<double> initial_of_buffer(const std::string& key);

}  // namespace pipedream
