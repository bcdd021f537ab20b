#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipedream/model/import/program.hpp"
#include "pipedream/model/leaf_layer.hpp"
#include "pipedream/model/model.hpp"

namespace pipedream {

/// Where a program that computes its own loss does so.
struct LossInFile {
  int loss = -1;        ///< value id
  int prediction = -1;  ///< value id of what is compared with the target, or -1
  int target = -1;      ///< index of the program's input that is the target, or -1
};

/// A program computes its loss if the file says so, or if one of its outputs is a floating-point scalar. Nothing if it does not.
[[nodiscard]] std::optional<LossInFile> find_loss(const Program& program);

/// A loss put behind an output of the given type: the layer and the target it wants. @throws UsageError for an unknown name
struct AddedLoss {
  LayerRecipe recipe;
  TensorSpec target;
  bool is_classification = false;  ///< accuracy makes sense
};
[[nodiscard]] AddedLoss make_loss(const std::string& name, const TensorType& output);

}  // namespace pipedream
