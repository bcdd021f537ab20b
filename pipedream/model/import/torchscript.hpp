#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "pipedream/model/import/pt2_file.hpp"

/// Files of torch.jit.save, traced or scripted, through the same Program as exported ones.
namespace pipedream {

/// Shape of an input without the batch, and type. TorchScript files do not say it.
struct ScriptInput {
  std::vector<std::int64_t> shape;
  bool is_integer = false;
};

/// "3x224x224" or "i128" (integers), joined by "+" for several inputs; "scalar" or "iscalar" for one number per sample.
/// @throws UsageError for anything else
[[nodiscard]] std::vector<ScriptInput> parse_script_inputs(const std::string& text);

/// True if the file is one of torch.jit.save.
[[nodiscard]] bool is_torchscript(const std::shared_ptr<const MappedFile>& file);

/// Follows forward through all modules and functions and writes down every operator it meets, while running it with batches of 3 and 5: so ranks,
/// types and which sizes follow the batch are known, conditions on them are decided, and loops are written out. Numbers of samples that the trace
/// turned into constants are noticed.
/// @throws InputError for files that cannot be read or trained: frozen, an output that ignores the batch, control flow that depends on values
[[nodiscard]] Pt2File read_torchscript(const std::string& file, const std::vector<ScriptInput>& inputs);

}  // namespace pipedream
