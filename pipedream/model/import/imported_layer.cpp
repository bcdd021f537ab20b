#include "pipedream/model/import/imported_layer.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/torch_operators.hpp"

namespace pipedream {

/// What a layer expects of one input.
struct ExpectedInput {
  std::string name;
  std::optional<TensorType> type;
  bool is_model_input = false;
};

struct LayerCode {
  std::string name;
  std::vector<BoundStep> steps;
  std::vector<std::string> step_texts;  ///< "h.0.attn (model.py:12 ...): aten.view.default(x, [2, 3])", for errors
  int slots = 0;
  std::vector<int> inputs, outputs, parameters, buffers, constants;  ///< slots
  std::vector<std::size_t> changed_buffers;                          ///< indices into `buffers`
  std::vector<ExpectedInput> expected;
  BatchSize batch;
  std::map<std::string, SymbolRange> ranges;
  std::string guards;
};

namespace {

/// The text of a libtorch error without the stack trace that follows it.
std::string first_part(const std::string& text) {
  std::string result = text.substr(0, text.find("Exception raised from"));
  while (!result.empty() && (result.back() == '\n' || result.back() == ' ' || result.back() == '(')) result.pop_back();
  return result;
}

/// Compares the sizes of inputs with what the file was exported for, before any operator sees them: some do not check and read past the end.
class InputCheck {
 public:
  explicit InputCheck(const LayerCode& code) : code_(code) {}

  void check(const ExpectedInput& expected, const at::Tensor& tensor) {
    if (!expected.type) return;
    if (!expected.is_model_input && code_.batch.symbol.empty() && !code_.batch.fixed) return;  // sizes may be multiples of another batch
    const auto& sizes = expected.type->sizes;
    if (tensor.dim() != static_cast<std::int64_t>(sizes.size())) fail(expected, tensor, "");
    for (std::size_t d = 0; d < sizes.size(); ++d) check_size(expected, tensor, sizes[d], tensor.size(static_cast<std::int64_t>(d)));
  }

 private:
  void check_size(const ExpectedInput& expected, const at::Tensor& tensor, const Dimension& wanted, std::int64_t size) {
    if (wanted.is_symbolic()) {
      const bool is_symbol = wanted.expression.find_first_of("(*+ ") == std::string::npos;
      if (is_symbol && symbols_.emplace(wanted.expression, size).first->second != size) fail(expected, tensor, "two inputs have different batches");
      const auto range = code_.ranges.find(wanted.expression);
      if (range == code_.ranges.end()) return;
      const auto [minimum, maximum] = range->second;  // exporters write a minimum of 2 where 1 works
      if ((maximum && size > *maximum) || (minimum && *minimum > 2 && size < *minimum)) {
        fail(expected, tensor,
             fmt::format("the model was exported for {} from {} to {}", wanted.expression, minimum.value_or(0), maximum.value_or(INT64_MAX)));
      }
      return;
    }
    if (wanted.value == size) return;
    const bool is_batch = code_.batch.symbol.empty() && wanted.value == code_.batch.example;
    if (is_batch && !code_.batch.fixed) return;
    if (is_batch) {
      throw UsageError(fmt::format("the model was exported for a batch of {} and cannot run {}: {}", wanted.value, size, code_.batch.fixed_by),
                       "export it with dynamic_shapes=({0: torch.export.Dim(\"batch\")},), or give --micro-batch " + std::to_string(wanted.value));
    }
    fail(expected, tensor, "");
  }

  [[noreturn]] void fail(const ExpectedInput& expected, const at::Tensor& tensor, const std::string& why) const {
    throw UsageError(fmt::format("layer {}: the input {} is {}, but {} was given{}{}", code_.name, expected.name, print_type(*expected.type),
                                 fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")), why.empty() ? "" : ": ", why),
                     "give data of the shape that the model was exported with");
  }

  const LayerCode& code_;
  std::map<std::string, std::int64_t> symbols_;
};

class ImportedLayer final : public Layer {
 public:
  ImportedLayer(std::shared_ptr<const ImportedLayerDefinition> definition, Tensors parameters, Tensors buffers)
      : definition_(std::move(definition)), parameters_(std::move(parameters)), buffers_(std::move(buffers)) {
    for (const LayerTensor& constant : definition_->constants) constants_.push_back(constant.values);
  }

  Tensors forward(const Tensors& inputs, const ForwardContext& context) override {
    const LayerCode& code = *definition_->code;
    PD_CHECK(inputs.size() == code.inputs.size(), "layer {} takes {} inputs, not {}", code.name, code.inputs.size(), inputs.size());
    InputCheck check(code);
    for (std::size_t i = 0; i < inputs.size(); ++i) check.check(code.expected[i], inputs[i]);
    Frame frame = make_frame(inputs, context);
    for (std::size_t i = 0; i < code.steps.size(); ++i) run(i, frame);
    Tensors outputs;
    for (const int slot : code.outputs) outputs.push_back(frame.slots[static_cast<std::size_t>(slot)].toTensor());
    return outputs;
  }

  [[nodiscard]] std::vector<NamedTensor> parameters() const override { return named(definition_->parameters, parameters_); }
  [[nodiscard]] std::vector<NamedTensor> buffers() const override { return named(definition_->buffers, buffers_); }

  [[nodiscard]] std::unique_ptr<Layer> another_version() const override {
    Tensors parameters;
    for (const at::Tensor& parameter : parameters_) parameters.push_back(parameter.detach().clone().requires_grad_());
    return std::make_unique<ImportedLayer>(definition_, std::move(parameters), buffers_);
  }

  void set_parameter(std::size_t index, const at::Tensor& parameter) override {
    PD_CHECK(index < parameters_.size(), "parameter {} of {}", index, parameters_.size());
    PD_CHECK(parameter.sizes() == parameters_[index].sizes(), "parameter '{}' gets another shape", definition_->parameters[index].name);
    parameters_[index] = parameter;
  }

 private:
  static std::vector<NamedTensor> named(const std::vector<LayerTensor>& definitions, const Tensors& tensors) {
    std::vector<NamedTensor> result;
    for (std::size_t i = 0; i < definitions.size(); ++i) result.push_back({definitions[i].name, tensors[i]});
    return result;
  }

  Frame make_frame(const Tensors& inputs, const ForwardContext& context) const {
    const LayerCode& code = *definition_->code;
    Frame frame{std::vector<c10::IValue>(static_cast<std::size_t>(code.slots)), device_of(inputs), &context};
    const auto put = [&](const std::vector<int>& slots, const Tensors& tensors) {
      for (std::size_t i = 0; i < slots.size(); ++i) frame.slots[static_cast<std::size_t>(slots[i])] = tensors[i];
    };
    put(code.inputs, inputs);
    put(code.parameters, parameters_);
    put(code.buffers, buffers_);
    for (std::size_t i = 0; i < code.constants.size(); ++i) frame.slots[static_cast<std::size_t>(code.constants[i])] = constants_[i].to(frame.device);
    if (context.training && !context.update_buffers) {  // a recomputation changes copies
      for (const std::size_t i : code.changed_buffers) frame.slots[static_cast<std::size_t>(code.buffers[i])] = buffers_[i].clone();
    }
    return frame;
  }

  [[nodiscard]] c10::Device device_of(const Tensors& inputs) const {
    if (!inputs.empty()) return inputs.front().device();
    return parameters_.empty() ? c10::Device(c10::kCPU) : parameters_.front().device();
  }

  void run(std::size_t index, Frame& frame) const {
    const LayerCode& code = *definition_->code;
    try {
      run_step(code.steps[index], frame);
    } catch (const c10::Error& error) {
      fail(index, error.what_without_backtrace());
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {  // errors of boxed calls and of what libtorch uses
      fail(index, error.what());
    }
  }

  [[noreturn]] void fail(std::size_t index, const std::string& why) const {
    const LayerCode& code = *definition_->code;
    throw UsageError(fmt::format("layer {} failed at {}: {}", code.name, code.step_texts[index], first_part(why)),
                     code.guards.empty() ? "check the shapes and types of the data against what the model was exported with"
                                         : "the export assumed: " + code.guards);
  }

  std::shared_ptr<const ImportedLayerDefinition> definition_;
  Tensors parameters_, buffers_, constants_;
};

/// Dense slots for the values of one layer.
class SlotTable {
 public:
  explicit SlotTable(std::size_t values) : slot_of_(values, -1) {}
  int add(int value) {
    int& slot = slot_of_[static_cast<std::size_t>(value)];
    if (slot < 0) slot = count_++;
    return slot;
  }
  [[nodiscard]] const std::vector<int>& map() const { return slot_of_; }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::vector<int> slot_of_;
  int count_ = 0;
};

void collect_slots(const BoundArgument& argument, std::vector<int>& slots) {
  if (argument.slot >= 0) slots.push_back(argument.slot);
  for (const BoundArgument& element : argument.elements) collect_slots(element, slots);
}

/// Marks the last reader of every value that is not an output, so that memory is let go as early as PyTorch does.
void find_dead_slots(LayerCode& code) {
  std::vector<bool> alive(static_cast<std::size_t>(code.slots), false);
  for (const int slot : code.outputs) alive[static_cast<std::size_t>(slot)] = true;
  for (std::size_t i = code.steps.size(); i-- > 0;) {
    std::vector<int> slots = code.steps[i].outputs;
    for (const BoundArgument& argument : code.steps[i].arguments) collect_slots(argument, slots);
    for (const int slot : slots) {
      if (alive[static_cast<std::size_t>(slot)]) continue;
      alive[static_cast<std::size_t>(slot)] = true;
      code.steps[i].dead.push_back(slot);
    }
  }
}

void describe_inputs(const LayeredProgram& layered, const ProgramLayer& layer, LayerCode& code) {
  for (const int id : layer.inputs) {
    const auto& inputs = layered.program.inputs;
    const auto at = std::find_if(inputs.begin(), inputs.end(), [&](const ProgramInput& input) { return input.value == id; });
    const ProgramValue& value = layered.program.values[static_cast<std::size_t>(id)];
    code.expected.push_back({at == inputs.end() ? value.name : at->name, value.type, at != inputs.end()});
  }
}

}  // namespace

std::shared_ptr<const LayerCode> bind_layer(const LayeredProgram& layered, std::size_t index, const BatchSize& batch,
                                            std::vector<ImportProblem>& problems) {
  const Program& program = layered.program;
  const ProgramLayer& layer = layered.layers[index];
  auto code = std::make_shared<LayerCode>();
  code->name = layer.name;
  code->batch = batch;
  code->ranges = program.ranges;
  code->guards = fmt::format("{}", fmt::join(program.guards, "; "));
  SlotTable table(program.values.size());
  const auto add_all = [&](const std::vector<int>& ids, std::vector<int>& slots) {
    for (const int id : ids) slots.push_back(table.add(id));
  };
  add_all(layer.inputs, code->inputs);
  add_all(layer.parameters, code->parameters);
  add_all(layer.buffers, code->buffers);
  add_all(layer.constants, code->constants);
  for (const int step : layer.steps) {
    for (const int id : program.steps[static_cast<std::size_t>(step)].writes()) table.add(id);
  }
  add_all(layer.outputs, code->outputs);
  for (const int id : layer.changed_buffers) {
    code->changed_buffers.push_back(static_cast<std::size_t>(std::find(layer.buffers.begin(), layer.buffers.end(), id) - layer.buffers.begin()));
  }
  const std::vector<int> roots = memory_roots(program);
  const std::size_t known = problems.size();
  for (const int step_index : layer.steps) {
    const ProgramStep& step = program.steps[static_cast<std::size_t>(step_index)];
    const auto source = std::find_if(layer.sizes.begin(), layer.sizes.end(), [&](const SizeSource& s) { return s.step == step_index; });
    auto bound =
        source != layer.sizes.end() ? bind_size(program, *source, table.map()) : bind_step(program, step_index, table.map(), batch, problems);
    if (!bound) continue;
    bound->only_in_training = is_in_place(step) && !changed_buffers(program, roots, step).empty();
    code->steps.push_back(std::move(*bound));
    code->step_texts.push_back(place_of(step) + ": " + print_step(program, step));
  }
  if (problems.size() > known) return nullptr;
  code->slots = table.count();
  find_dead_slots(*code);
  describe_inputs(layered, layer, *code);
  return code;
}

std::unique_ptr<Layer> make_imported_layer(std::shared_ptr<const ImportedLayerDefinition> definition, Tensors parameters, Tensors buffers) {
  return std::make_unique<ImportedLayer>(std::move(definition), std::move(parameters), std::move(buffers));
}

}  // namespace pipedream
