#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipedream/model/import/layering.hpp"
#include "pipedream/model/import/program_check.hpp"
#include "pipedream/model/layer.hpp"

namespace pipedream {

/// A parameter, buffer or constant of an imported layer: its values in the file and what it is called.
struct LayerTensor {
  std::string key;    ///< in the state_dict
  std::string name;   ///< within the layer
  at::Tensor values;  ///< in the file's memory, not to be written; undefined: the file has none
  bool trained = false;
};

struct LayerCode;  // steps bound to operators; immutable, shared by all instances

/// What all instances of a layer share.
struct ImportedLayerDefinition {
  std::string name;
  std::shared_ptr<const LayerCode> code;
  std::vector<LayerTensor> parameters, buffers, constants;  ///< in the order of ProgramLayer; frozen parameters are constants
};

/// Binds the steps of layer `index` to libtorch's operators. @returns nothing, and adds to `problems`, if some cannot be run
[[nodiscard]] std::shared_ptr<const LayerCode> bind_layer(const LayeredProgram& layered, std::size_t index, const BatchSize& batch,
                                                          std::vector<ImportProblem>& problems);

/// An instance with parameters and buffers of its own. `values` gives initial values where the file has none.
[[nodiscard]] std::unique_ptr<Layer> make_imported_layer(std::shared_ptr<const ImportedLayerDefinition> definition, Tensors parameters,
                                                         Tensors buffers);

}  // namespace pipedream
