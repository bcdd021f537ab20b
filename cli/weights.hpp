#pragma once

#include <string>
#include <vector>

#include "pipedream/model/model.hpp"
#include "pipedream/runtime/trainer.hpp"

/// Weights in and out: safetensors files with the keys of the model's state_dict, which PyTorch loads with load_state_dict(strict=True).
namespace pipedream::cli {

/// Writes what a run ended with (TrainOptions::collect_weights). @throws InputError if the file cannot be written
void save_weights(const Model& model, const std::vector<NamedWeight>& weights, const std::string& file);

/// Lets every instance of the model start from the file's values. The file stays mapped; it is read when an instance is made.
/// @throws InputError if it is damaged or does not have exactly the model's keys, shapes and types
void start_from_weights(Model& model, const std::string& file);

}  // namespace pipedream::cli
