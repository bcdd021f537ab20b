#pragma once

#include <string>

#include "pipedream/core/json.hpp"

namespace pipedream::cli {

/// True for files of PyTorch, with or without options behind a colon.
[[nodiscard]] bool is_model_spec(const std::string& spec);

/// What `pipedream inspect` shows of a model: inputs, parameters, layers, and what will not work and why.
[[nodiscard]] Json inspect_model(const std::string& spec);

}  // namespace pipedream::cli
