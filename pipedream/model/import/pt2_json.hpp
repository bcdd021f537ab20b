#pragma once

#include "pipedream/core/json.hpp"
#include "pipedream/model/import/program.hpp"

/// Pieces of the JSON of torch.export that both the program and the tables of weights use.
namespace pipedream {

/// The key and value of an object with exactly one key: how the format writes variants.
[[nodiscard]] std::pair<std::string, JsonView> variant_of(const JsonView& view);

/// {"as_int": 4} or {"as_expr": {"expr_str": "Symbol('s77', ...)", "hint": {"as_int": 4}}}.
[[nodiscard]] Dimension dimension_of(const JsonView& view);

[[nodiscard]] TensorType tensor_type_of(const JsonView& view);

}  // namespace pipedream
