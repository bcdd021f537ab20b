#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/model/import/layering.hpp"
#include "pipedream/model/import/program_check.hpp"
#include "pipedream/model/import/torchscript.hpp"
#include "pipedream/model/model.hpp"
#include "pipedream/model/run.hpp"

/// Model files of PyTorch as models of this program.
namespace pipedream {

struct ImportOptions {
  std::string model;  ///< of an archive that holds several
  Granularity granularity;
  std::string loss;                        ///< name of a loss added behind the model's first output; empty: the model's own, else cross-entropy
  bool use_file_weights = true;            ///< false: initial weights from the seed, whatever the file holds
  bool frozen_statistics = false;          ///< accept a model exported after model.eval()
  std::vector<ScriptInput> script_inputs;  ///< of TorchScript files, which do not say them
  /// Names of parameters that are one, for files without weights, where that cannot be seen.
  std::vector<std::vector<std::string>> ties;
};

/// Reads a .pt2 or TorchScript file, cuts it into layers and binds them to libtorch's operators.
///
/// Inputs of the model are those of its forward, and the target if the loss is added. Parameters and buffers are copied from the file (which stays
/// mapped) when an instance is created. Parameters that do not require grad are buffers.
/// @throws InputError with everything about the file that cannot be trained here; UsageError for a wrong option
[[nodiscard]] Model import_model(const std::string& file, const ImportOptions& options = {});

/// True if `--model` names a file of this kind: "m.pt2", "dir/m.pt2:granularity=block".
[[nodiscard]] bool is_model_file(const std::string& spec);

/// import_model() with options out of the text: "FILE[:granularity=leaf|block|block2|node,loss=NAME,init=file|seed,model=NAME,tie=A+B,
/// frozen-statistics=true]".
[[nodiscard]] Model import_model_spec(const std::string& spec);
/// The file and the options of such a text. @throws UsageError for unknown ones
[[nodiscard]] std::pair<std::string, ImportOptions> import_options_of(const std::string& spec);

/// Gives inputs the names that data sets have for their kind: "image" for floats [channels, height, width], "tokens" for integers [length], "target"
/// for what the loss is computed with. Others keep the names they have in forward.
void name_inputs_for_data(Model& model);

/// Synthetic data that fits the model's inputs.
[[nodiscard]] std::string synthetic_data_spec(const Model& model);

/// Names of losses that can be added, and what each expects.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> list_losses();

/// What `pipedream inspect` tells about a model file. Does not throw for what cannot be trained: that is in `problems`.
struct ModelFileReport {
  LayeredProgram layered;  ///< empty if the program cannot be cut
  std::vector<ImportProblem> problems;
  BatchSize batch;
  bool has_values = true;
  bool has_loss = false;
  std::vector<std::pair<std::string, std::string>> parameters;  ///< state_dict key, "float32[64, 3, 3, 3]"
  std::int64_t parameter_count = 0;
};
[[nodiscard]] ModelFileReport inspect_model_file(const std::string& file, const ImportOptions& options = {});

/// The state_dict of a model: one entry per key, tied keys each, in the order of the file. Models that were not read from a file have the keys
/// "layer.parameter". Layers of other stages may be null; their entries are left out.
[[nodiscard]] std::vector<NamedTensor> state_dict(const Model& model, const Layers& layers);

/// Copies values into parameters and buffers. @param place what errors name as the file
/// @throws InputError for keys that are missing or unknown, and for other shapes or types
void load_state_dict(const Model& model, const Layers& layers, const std::vector<NamedTensor>& values, const std::string& place);

}  // namespace pipedream
