#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "pipedream/model/run.hpp"
#include "pipedream/runtime/trainer.hpp"

/// Weights of a model on disk: safetensors with the keys of the model's state_dict, which PyTorch loads strictly.
namespace pipedream::cli {

/// What a weight file says of itself: "model", "data", "micro_batch", ...
using Metadata = std::map<std::string, std::string>;

/// Instances of all layers with the weights and buffers that a run ended with.
[[nodiscard]] Layers layers_with(const Model& model, const TrainResult& result);

void save_weights(const std::filesystem::path& path, const Model& model, const Layers& layers, const Metadata& metadata);

/// Reads a file into the layers. @throws InputError for a file that does not fit the model
void load_weights(const std::filesystem::path& path, const Model& model, const Layers& layers);
[[nodiscard]] Metadata read_metadata(const std::filesystem::path& path);

}  // namespace pipedream::cli
