#include "pipedream/model/import/import_model.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/named_spec.hpp"
#include "pipedream/model/import/imported_layer.hpp"
#include "pipedream/model/import/initial_by_class.hpp"
#include "pipedream/model/import/losses.hpp"
#include "pipedream/model/import/pt2_file.hpp"
#include "pipedream/model/import/torch_operators.hpp"
#include "pipedream/model/import/torchscript.hpp"

namespace pipedream {
namespace {

/// The tensors of a file by key, in the file's memory.
class FileTensors {
 public:
  FileTensors(const Pt2File& file, const ImportOptions& options) : file_(file), options_(options) {
    for (const auto* tensors : {&file.weights, &file.constants}) {
      for (const StoredTensor& tensor : *tensors) stored_.emplace(tensor.name, &tensor);
    }
    find_aliases();
  }

  [[nodiscard]] const StoredTensor& stored(const std::string& key) const { return *stored_.at(key); }
  [[nodiscard]] const StoredTensor* find(const std::string& key) const {
    const auto at = stored_.find(key);
    return at == stored_.end() ? nullptr : at->second;
  }
  /// The values; undefined if the file has none. Not to be written: the memory is the file's.
  [[nodiscard]] at::Tensor values(const std::string& key) const {
    const StoredTensor& tensor = stored(key);
    const ZipData& data = file_.storages.at(tensor.storage);
    const auto options = at::TensorOptions().dtype(scalar_type_of(tensor.element));
    if (tensor.elements() == 0) return at::empty(tensor.sizes, options);
    if (data.bytes.empty()) return {};
    const auto bytes = static_cast<std::size_t>(element_bytes(tensor.element));
    const char* start = data.bytes.data() + static_cast<std::size_t>(tensor.offset) * bytes;
    if (reinterpret_cast<std::uintptr_t>(start) % bytes == 0) {
      return at::from_blob(
          const_cast<char*>(start), tensor.sizes, tensor.strides, [owner = data.owner](void*) {}, options);
    }
    // Archives written by other tools need not align their entries.
    auto copy = std::make_shared<std::string>(start, static_cast<std::size_t>(tensor.reach() - tensor.offset) * bytes);
    return at::from_blob(
        copy->data(), tensor.sizes, tensor.strides, [copy](void*) {}, options);
  }
  /// The first of the names of the same parameter.
  [[nodiscard]] const std::string& alias_of(const std::string& key) const { return aliases_.at(key); }

 private:
  /// Names of the same window on the same storage are one parameter. In a file without values all lie in one empty storage: only the user
  /// knows.
  void find_aliases() {
    std::map<std::string, std::string> first;
    for (const auto& [key, tensor] : stored_) {
      const bool has_values = !file_.storages.at(tensor->storage).bytes.empty();
      const std::string window =
          fmt::format("{}@{}[{}][{}]", tensor->storage, tensor->offset, fmt::join(tensor->sizes, ","), fmt::join(tensor->strides, ","));
      aliases_[key] = has_values && tensor->is_parameter ? first.emplace(window, key).first->second : key;
    }
    for (const auto& group : options_.ties) {
      for (const std::string& key : group) {
        if (!stored_.contains(key))
          throw UsageError(fmt::format("a tie names {}, which the model does not have", key), "pipedream inspect FILE lists the parameters");
        if (stored(key).sizes != stored(group.front()).sizes)
          throw UsageError(fmt::format("a tie names {} and {}, which have different shapes", group.front(), key));
        aliases_[key] = group.front();
      }
    }
  }

  const Pt2File& file_;
  const ImportOptions& options_;
  std::map<std::string, const StoredTensor*> stored_;
  std::map<std::string, std::string> aliases_;
};

/// A tensor of an instance: from the file, or drawn.
struct TensorSource {
  at::Tensor values;  ///< undefined: drawn
  ParameterSpec spec;
  at::ScalarType type = at::kFloat;

  [[nodiscard]] at::Tensor make(std::uint64_t seed) const {
    if (values.defined()) return values.clone();
    return initial_values(spec, {seed, ""}).to(type);
  }
};

bool is_evaluation_flag(const std::string& operator_of, const std::string& argument) {
  return (argument == "train" && operator_of != "to") || (argument == "training" && (operator_of == "batch_norm" || operator_of == "rrelu"));
}

/// A model exported after model.eval() has all of its dropouts and batch norms switched off.
void check_training_mode(const Program& program, std::vector<ImportProblem>& problems) {
  bool any = false, training = false;
  for (const ProgramStep& step : program.steps) {
    for (const NamedArgument& argument : step.arguments) {
      if (argument.value.kind != Argument::Kind::Boolean || !is_evaluation_flag(operator_name(step), argument.name)) continue;
      any = true;
      training = training || argument.value.integer != 0;
    }
  }
  if (any && !training) {
    problems.push_back({"", "the model was exported after model.eval(): its dropout and batch norm are switched off",
                        "export model.train(), or add :frozen-statistics=true to train it as it is"});
  }
}

/// Loss and prediction must be the first output of their layers; the loss goes first where one layer makes both.
void put_outputs_first(LayeredProgram& layered) {
  const auto& outputs = layered.program.outputs;
  for (std::size_t i = outputs.size(); i-- > 0;) {
    const int maker = layered.maker_of(outputs[i].value);
    if (maker < 0) continue;
    auto& of_layer = layered.layers[static_cast<std::size_t>(maker)].outputs;
    const auto at = std::find(of_layer.begin(), of_layer.end(), outputs[i].value);
    std::rotate(of_layer.begin(), at, at + 1);
  }
}

/// Parameters that do not require grad are treated as buffers: they have no gradient and weight versions share them.
void move_frozen_parameters(const Pt2File& file, LayeredProgram& layered) {
  std::set<std::string> trained;
  for (const StoredTensor& tensor : file.weights) {
    if (tensor.requires_grad && is_floating(tensor.element)) trained.insert(tensor.name);
  }
  std::set<int> frozen;
  for (const ProgramTensor& parameter : layered.program.parameters) {
    if (!trained.contains(parameter.name)) frozen.insert(parameter.value);
  }
  for (ProgramLayer& layer : layered.layers) {
    const auto middle = std::stable_partition(layer.parameters.begin(), layer.parameters.end(), [&](int id) { return !frozen.contains(id); });
    layer.buffers.insert(layer.buffers.begin(), middle, layer.parameters.end());
    layer.parameters.erase(middle, layer.parameters.end());
  }
}

/// Everything up to the model: what `inspect` shows, and what is built from.
struct Analysis {
  Pt2File file;
  LayeredProgram layered;
  std::vector<std::shared_ptr<const LayerCode>> codes;
  std::vector<ImportProblem> problems;
  BatchSize batch;
  std::optional<LossInFile> loss;
};

Analysis analyse(const std::string& file, const ImportOptions& options) {
  register_missing_operators();
  Analysis result;
  const auto mapped = MappedFile::open(file);
  result.file = is_torchscript(mapped) ? read_torchscript(file, options.script_inputs) : read_pt2(mapped, {options.model});
  Program program = result.file.program;
  result.problems = check_program(program);
  if (!options.frozen_statistics) check_training_mode(program, result.problems);
  if (!result.problems.empty()) return result;
  result.batch = batch_size_of(program);
  if (options.loss.empty()) result.loss = find_loss(program);
  // Only what is trained or predicted is computed.
  if (result.loss) program.outputs = {{result.loss->loss, true}};
  else program.outputs = {*std::find_if(program.outputs.begin(), program.outputs.end(), [](const ProgramOutput& o) { return o.value >= 0; })};
  if (result.loss && result.loss->prediction >= 0) program.outputs.push_back({result.loss->prediction, false});
  result.layered = cut_into_layers(program, options.granularity);
  put_outputs_first(result.layered);
  move_frozen_parameters(result.file, result.layered);
  for (std::size_t i = 0; i < result.layered.layers.size(); ++i) result.codes.push_back(bind_layer(result.layered, i, result.batch, result.problems));
  return result;
}

/// Builds the model from an analysis without problems.
class ModelMaker {
 public:
  ModelMaker(const std::string& file, const ImportOptions& options, Analysis analysis)
      : file_(file),
        options_(options),
        analysis_(std::move(analysis)),
        tensors_(analysis_.file, options_),
        classes_(module_classes(analysis_.file.program)) {
    model_.name = std::filesystem::path(file).stem().string();
    for (const auto* tensors : {&program().parameters, &program().buffers, &program().constants}) {
      for (const ProgramTensor& tensor : *tensors) keys_.emplace(tensor.value, tensor.name);
    }
    const auto& layers = analysis_.layered.layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (std::size_t k = 0; k < layers[i].outputs.size(); ++k) makers_[layers[i].outputs[k]] = {static_cast<int>(i), static_cast<int>(k)};
    }
  }

  Model run() {
    add_inputs();
    for (std::size_t i = 0; i < analysis_.layered.layers.size(); ++i) add_layer(i);
    add_loss();
    add_ties();
    add_state();
    refuse(problems_, file_);
    for (const std::string& note : analysis_.layered.notes) log_info("{}", note);
    validate(model_);
    return std::move(model_);
  }

 private:
  [[nodiscard]] const Program& program() const { return analysis_.layered.program; }

  void add_inputs() {
    for (const ProgramInput& input : program().inputs) {
      const TensorType& type = *program().values[static_cast<std::size_t>(input.value)].type;
      TensorSpec spec{input.name, {}, scalar_type_of(type.element), embedding_rows(input.value)};
      for (std::size_t d = 1; d < type.sizes.size(); ++d) spec.shape.push_back(type.sizes[d].value);
      makers_[input.value] = InputRef::model_input(static_cast<int>(model_.inputs.size()));
      model_.inputs.push_back(std::move(spec));
    }
  }

  /// Rows of the embedding that looks the values of an input up; 0 if none does.
  [[nodiscard]] std::int64_t embedding_rows(int value) const {
    for (const ProgramStep& step : program().steps) {
      if (operator_name(step) != "embedding" || step.arguments.size() < 2 || step.arguments[1].value != Argument::of_value(value)) continue;
      const auto& weight = program().values[static_cast<std::size_t>(std::max(step.first_value(), 0))].type;
      if (weight && !weight->sizes.empty()) return weight->sizes[0].value;
    }
    return 0;
  }

  /// Classes of a prediction: its last dimension.
  [[nodiscard]] std::int64_t classes_of(int value) const {
    const auto& type = program().values[static_cast<std::size_t>(value)].type;
    return type && !type->sizes.empty() && !type->sizes.back().is_symbolic() ? type->sizes.back().value : 0;
  }

  /// @param is_used false: nothing depends on it, so any value will do
  TensorSource source_of(const std::string& key, bool is_used = true) {
    const StoredTensor& stored = tensors_.stored(key);
    const bool is_parameter = stored.is_parameter;
    TensorSource source;
    source.type = scalar_type_of(stored.element);
    if (options_.use_file_weights || !is_parameter) source.values = tensors_.values(key);
    source.spec = {tensors_.alias_of(key), stored.sizes, {}};
    if (source.values.defined()) return source;
    if (is_parameter) {
      const std::size_t dot = key.rfind('.');
      const StoredTensor* weight = tensors_.find((dot == std::string::npos ? "" : key.substr(0, dot + 1)) + "weight");
      source.spec.initial = initial_of_parameter(classes_, key, stored.sizes, weight ? std::optional(weight->sizes) : std::nullopt);
    } else if (const auto value = initial_of_buffer(key)) {
      source.spec.initial = Initial::constant(*value);
    } else if (is_used) {
      problems_.push_back({key, "the file holds no values of this buffer: it was saved from the meta device",
                           "save the model from a device with memory, or compute the buffer in forward"});
    }
    return source;
  }

  /// Names within the layer: the last part of the key, or all of it where that is not unique.
  static void name_tensors(ImportedLayerDefinition& definition) {
    std::map<std::string, int> count;
    const auto each = [&](const auto& use) {
      for (auto* tensors : {&definition.parameters, &definition.buffers, &definition.constants}) {
        for (LayerTensor& tensor : *tensors) use(tensor);
      }
    };
    each([&](LayerTensor& tensor) { ++count[tensor.name = tensor.key.substr(tensor.key.rfind('.') + 1)]; });
    each([&](LayerTensor& tensor) {
      if (count[tensor.name] > 1) tensor.name = tensor.key;
    });
  }

  void add_layer(std::size_t index) {
    const ProgramLayer& layer = analysis_.layered.layers[index];
    auto definition = std::make_shared<ImportedLayerDefinition>();
    definition->name = layer.name;
    std::vector<TensorSource> parameters, buffers;
    for (const int id : layer.parameters) {
      parameters.push_back(source_of(keys_.at(id)));
      definition->parameters.push_back({keys_.at(id), "", {}, true});
    }
    for (const int id : layer.buffers) {
      buffers.push_back(source_of(keys_.at(id)));
      definition->buffers.push_back({keys_.at(id), "", {}, false});
    }
    for (const int id : layer.constants) definition->constants.push_back({keys_.at(id), "", source_of(keys_.at(id)).values, false});
    name_tensors(*definition);
    definition->code = analysis_.codes[index];
    LayerNode node;
    node.name = layer.name;
    node.description = describe(layer);
    for (const int id : layer.inputs) node.inputs.push_back(makers_.at(id));
    node.num_outputs = static_cast<int>(layer.outputs.size());
    node.create = [definition, parameters, buffers](const LayerSeed& seed) {
      Tensors own, shared;
      for (const TensorSource& source : parameters) own.push_back(source.make(seed.seed).requires_grad_());
      for (const TensorSource& source : buffers) shared.push_back(source.make(seed.seed));
      return make_imported_layer(definition, std::move(own), std::move(shared));
    };
    model_.nodes.push_back(std::move(node));
    definitions_.push_back(definition);
  }

  /// "Linear: linear" or "GptBlock: layer_norm, linear, ... (12 operators)".
  [[nodiscard]] std::string describe(const ProgramLayer& layer) const {
    std::string text = layer.type.substr(layer.type.rfind('.') + 1);
    std::string operators;
    int count = 0;
    for (const int step : layer.steps) {
      const ProgramStep& s = program().steps[static_cast<std::size_t>(step)];
      if (is_scalar(program(), s) || ++count > 3) continue;
      operators += (operators.empty() ? "" : ", ") + operator_name(s);
    }
    if (count > 3) operators += fmt::format(", ... ({} operators)", count);
    return text.empty() ? operators : text + ": " + operators;
  }

  void add_loss() {
    if (analysis_.loss) {
      model_.loss = output_first(analysis_.loss->loss);
      model_.target = analysis_.loss->target;
      if (analysis_.loss->prediction >= 0) model_.inputs[static_cast<std::size_t>(model_.target)].limit = classes_of(analysis_.loss->prediction);
      if (analysis_.loss->prediction >= 0 && makers_.at(analysis_.loss->prediction).layer != model_.loss)
        model_.prediction = output_first(analysis_.loss->prediction);
      if (model_.prediction < 0) model_.target = -1;
      return;
    }
    const int output = program().outputs.front().value;
    const auto& type = program().values[static_cast<std::size_t>(output)].type;
    if (!type) throw InputError(file_, "the file does not say the shape of the model's output", "export the model again");
    AddedLoss loss = make_loss(options_.loss.empty() ? "cross-entropy" : options_.loss, *type);
    const int made_by = output_first(output);
    const InputRef target = InputRef::model_input(static_cast<int>(model_.inputs.size()));
    if (loss.is_classification) loss.target.limit = classes_of(output);
    model_.inputs.push_back(loss.target);
    model_.nodes.push_back({unused_name("loss"), loss.recipe.first, loss.recipe.second, {{made_by, 0}, target}, 1});
    model_.loss = static_cast<int>(model_.nodes.size()) - 1;
    if (loss.is_classification) {
      model_.prediction = made_by;
      model_.target = target.model_input_index();
    }
  }

  [[nodiscard]] std::string unused_name(std::string name) const {
    while (std::any_of(model_.nodes.begin(), model_.nodes.end(), [&](const LayerNode& node) { return node.name == name; })) name += "_";
    return name;
  }

  /// The layer that makes a value, which must be its output 0 for loss and prediction.
  int output_first(int value) {
    const InputRef ref = makers_.at(value);
    if (ref.is_model_input()) throw InputError(file_, "the model returns its input", "return what it computes");
    if (ref.output != 0)
      throw InternalError(fmt::format("output {} of {} should be its first", ref.output, model_.nodes[static_cast<std::size_t>(ref.layer)].name));
    return ref.layer;
  }

  void add_ties() {
    std::map<std::string, WeightTie> ties;
    for (std::size_t i = 0; i < definitions_.size(); ++i) {
      for (const LayerTensor& parameter : definitions_[i]->parameters)
        ties[tensors_.alias_of(parameter.key)].places.push_back({static_cast<int>(i), parameter.name});
    }
    for (auto& [key, tie] : ties) {
      if (tie.places.size() > 1) model_.ties.push_back(std::move(tie));
    }
  }

  /// One entry per key of the file's state_dict; keys that no layer uses take an alias, or stay what they are.
  void add_state() {
    std::multimap<std::string, StateEntry> places;  // by alias; a key used in several layers has an entry for each
    for (std::size_t i = 0; i < definitions_.size(); ++i) {
      for (const auto* tensors : {&definitions_[i]->parameters, &definitions_[i]->buffers}) {
        for (const LayerTensor& tensor : *tensors)
          places.emplace(tensors_.alias_of(tensor.key), StateEntry{"", static_cast<int>(i), tensor.name, {}});
      }
    }
    for (const StoredTensor& stored : analysis_.file.weights) {
      const auto [begin, end] = places.equal_range(tensors_.alias_of(stored.name));
      for (auto place = begin; place != end; ++place) {
        model_.state.push_back(place->second);
        model_.state.back().key = stored.name;
      }
      if (begin != end) continue;
      const TensorSource source = source_of(stored.name, false);
      model_.state.push_back({stored.name, -1, "", source.values.defined() ? source.values : source.make(0)});
      if (stored.is_parameter) log_info("the parameter {} has no influence on the loss and is not trained", stored.name);
    }
  }

  const std::string file_;
  const ImportOptions& options_;
  Analysis analysis_;
  FileTensors tensors_;
  std::map<std::string, std::string> classes_;
  std::map<int, std::string> keys_;
  std::map<int, InputRef> makers_;
  std::vector<std::shared_ptr<const ImportedLayerDefinition>> definitions_;
  std::vector<ImportProblem> problems_;
  Model model_;
};

Granularity granularity_of(const std::string& text) {
  // A colon would end the file's name in a model spec: "block2" is "block:2".
  const bool has_depth = text.starts_with("block") && text.size() > 5 && text[5] != ':';
  return parse_granularity(has_depth ? "block:" + text.substr(5) : text);
}

std::string file_of_spec(const std::string& spec) { return spec.substr(0, spec.find(':')); }

}  // namespace

Model import_model(const std::string& file, const ImportOptions& options) {
  Analysis analysis = analyse(file, options);
  refuse(analysis.problems, file);
  return ModelMaker(file, options, std::move(analysis)).run();
}

bool is_model_file(const std::string& spec) {
  const std::string file = file_of_spec(spec);
  return file.ends_with(".pt2") || file.ends_with(".pt") || file.ends_with(".pth") || file.find('/') != std::string::npos;
}

std::pair<std::string, ImportOptions> import_options_of(const std::string& spec) {
  NamedSpec named(spec, "model");
  ImportOptions options;
  options.granularity = granularity_of(named.text("granularity", "leaf"));
  options.loss = named.text("loss", "");
  options.model = named.text("model", "");
  options.frozen_statistics = named.flag("frozen-statistics", false);
  const std::string init = named.text("init", "file");
  if (init != "file" && init != "seed") throw UsageError(fmt::format("unknown init \"{}\"", init), "file or seed");
  options.use_file_weights = init == "file";
  if (const std::string inputs = named.text("input", ""); !inputs.empty()) options.script_inputs = parse_script_inputs(inputs);
  std::vector<std::string> tie;
  for (std::string rest = named.text("tie", ""); !rest.empty(); rest = rest.find('+') == std::string::npos ? "" : rest.substr(rest.find('+') + 1)) {
    tie.push_back(rest.substr(0, rest.find('+')));
  }
  if (!tie.empty()) options.ties = {tie};
  named.finish();
  return {named.name(), options};
}

Model import_model_spec(const std::string& spec) {
  const auto [file, options] = import_options_of(spec);
  return import_model(file, options);
}

ModelFileReport inspect_model_file(const std::string& file, const ImportOptions& options) {
  Analysis analysis = analyse(file, options);
  ModelFileReport report;
  report.batch = analysis.batch;
  report.has_values = analysis.file.has_values;
  report.has_loss = analysis.loss.has_value();
  std::set<std::pair<std::string, std::int64_t>> windows;
  for (const StoredTensor& tensor : analysis.file.weights) {
    if (!tensor.is_parameter) continue;
    report.parameters.emplace_back(tensor.name, fmt::format("{}[{}]", name_of(tensor.element), fmt::join(tensor.sizes, ", ")));
    const bool is_alias = report.has_values && !windows.emplace(tensor.storage, tensor.offset).second;  // tied parameters count once
    report.parameter_count += is_alias ? 0 : tensor.elements();
  }
  if (analysis.layered.program.values.empty()) analysis.layered.program = analysis.file.program;
  report.layered = std::move(analysis.layered);
  report.problems = std::move(analysis.problems);
  return report;
}

}  // namespace pipedream
