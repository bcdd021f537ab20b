#pragma once

#include <map>
#include <string>

#include "pipedream/model/model.hpp"
#include "pipedream/runtime/trainer.hpp"

/// Weights in and out: safetensors files with the keys of the model's state_dict, which PyTorch loads with load_state_dict(strict=True).
namespace pipedream::cli {

/// What a weight file says of itself: "model", "data", "micro_batch", ...
using Metadata = std::map<std::string, std::string>;

/// Writes the weights and buffers that a run ended with (TrainOptions::collect_weights). @throws InputError if the file cannot be written
void save_weights(const Model& model, const TrainResult& result, const std::string& file, Metadata metadata = {});
[[nodiscard]] Metadata read_metadata(const std::string& file);

/// Lets every instance of the model start from the file's values. The file stays mapped; it is read when an instance is made.
/// @throws InputError if it is damaged or does not have exactly the model's keys, shapes and types
void start_from_weights(Model& model, const std::string& file);

}  // namespace pipedream::cli
