#include "cli/model_data.hpp"

#include <fmt/format.h>

#include "pipedream/model/zoo.hpp"
#include "pipedream/runtime/loader_source.hpp"

namespace pipedream::cli {
namespace {

// Synthetic data of the shape a model has by itself. Its 10 classes and 64 tokens are among those of every model of natural size.
std::string synthetic_spec(const Model& model) {
  for (const TensorSpec& input : model.inputs)
    if (input.name == "tokens") return "synthetic-tokens";
  return fmt::format("synthetic-images:channels={},size={}", model.inputs.at(0).shape.at(0), model.inputs.at(0).shape.at(1));
}

ModelContext context_of(const DataInfo& info) { return {info.sample_shape, info.classes, info.vocabulary}; }

}  // namespace

ModelAndData load_model_and_data(const std::string& model_spec, const std::string& data_spec) {
  ModelAndData result;
  result.data_spec = data_spec;
  ModelContext context;
  if (data_spec.empty()) result.data_spec = synthetic_spec(make_model(model_spec, {}));
  result.source = open_data(result.data_spec);
  if (!data_spec.empty()) context = context_of(result.source->info());
  result.model = make_model(model_spec, context);
  result.train = result.source->split(Split::Train, fields_of(result.model));
  result.test = result.source->split(Split::Test, fields_of(result.model));
  return result;
}

}  // namespace pipedream::cli
