#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/model/run.hpp"

namespace pipedream {

/// What one forward of each layer allocated: see measure().
struct LayerMemory {
  std::vector<std::int64_t> output_bytes;  ///< per output
  std::int64_t stashed_bytes = 0;
};

/// Runs one forward of the whole model and follows every allocation of this thread. Buffers are left alone.
[[nodiscard]] std::vector<LayerMemory> measure_memory(const Model& model, const Layers& layers, const Tensors& inputs, ForwardContext context);

}  // namespace pipedream
