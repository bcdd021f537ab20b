#include "cli/model_data.hpp"

#include <fmt/format.h>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/import_model.hpp"
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

/// A model from a file has one form, which the data must fit; models of the zoo take theirs from the data.
ModelAndData load_file_and_data(const std::string& model_spec, const std::string& data_spec) {
  ModelAndData result;
  result.model = import_model_spec(model_spec);
  name_inputs_for_data(result.model);
  result.data_spec = data_spec.empty() ? synthetic_data_spec(result.model) : data_spec;
  result.source = open_data(result.data_spec);
  const DataInfo& info = result.source->info();
  for (const TensorSpec& input : result.model.inputs) {
    const bool is_target = input.name == "target";
    const std::int64_t largest = is_target && info.classes > 0 ? info.classes : info.vocabulary;
    if (input.dtype == at::kLong && input.limit > 0 && largest > input.limit)
      throw UsageError(
          fmt::format("'{}' has {} {}, the model in {} has {}", result.data_spec, largest, is_target ? "classes" : "tokens", model_spec, input.limit),
          "choose other data, or export the model with a larger head");
  }
  result.train = result.source->split(Split::Train, fields_of(result.model));
  result.test = result.source->split(Split::Test, fields_of(result.model));
  return result;
}

}  // namespace

std::string with_loss(const std::string& model_spec, const std::string& loss) {
  if (loss.empty()) return model_spec;
  if (!is_model_file(model_spec)) throw UsageError(fmt::format("--loss is for models from files; '{}' has its own", model_spec), "leave it out");
  const bool has_options = import_options_of(model_spec).first != model_spec;
  if (has_options && model_spec.find("loss=") != std::string::npos) throw UsageError(fmt::format("'{}' and --loss both name a loss", model_spec));
  return model_spec + (has_options ? ",loss=" : ":loss=") + loss;
}

ModelAndData load_model_and_data(const std::string& model_spec, const std::string& data_spec) {
  if (is_model_file(model_spec)) return load_file_and_data(model_spec, data_spec);
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
