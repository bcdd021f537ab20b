#include "pipedream/model/import/torch_operators.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/model/import/aliases.hpp"

namespace pipedream {
namespace {

using c10::IValue;
using c10::TypeKind;

/// A Python number where a tensor is declared takes part in type promotion as a number, not as a tensor.
at::Tensor wrapped_number(const c10::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, number.isFloatingPoint() ? at::kDouble : number.isBoolean() ? at::kBool : at::kLong);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// Converts arguments of the file to what an operator's schema wants.
class ArgumentBinder {
 public:
  explicit ArgumentBinder(const std::vector<int>& slot_of) : slot_of_(slot_of) {}

  [[nodiscard]] BoundArgument bind(const Argument& argument, c10::TypePtr type, int list_size) const {
    if (const auto optional = type->cast<c10::OptionalType>()) {
      if (argument.kind == Argument::Kind::None) return constant(IValue());
      type = optional->getElementType();
    }
    if (argument.is_value()) return slot(argument, type->kind() == TypeKind::TensorType);
    if (type->kind() == TypeKind::ListType) return list(argument, type->castRaw<c10::ListType>()->getElementType(), list_size);
    return constant_of(argument, type);
  }

  /// Without a schema: numbers and slots, as arithmetic has them.
  [[nodiscard]] BoundArgument bind(const Argument& argument) const {
    if (argument.is_value()) return slot(argument);
    if (argument.kind == Argument::Kind::Boolean) return constant(argument.integer != 0);
    if (argument.kind == Argument::Kind::Float) return constant(argument.number);
    return constant(argument.integer);
  }

 private:
  static BoundArgument constant(IValue value) { return {BoundArgument::Kind::Constant, std::move(value), -1, {}, false}; }
  [[nodiscard]] BoundArgument slot(const Argument& argument, bool is_tensor = false) const {
    return {BoundArgument::Kind::Slot, {}, slot_of_[static_cast<std::size_t>(argument.integer)], {}, is_tensor};
  }

  static c10::Scalar scalar_of(const Argument& argument) {
    if (argument.kind == Argument::Kind::Float) return argument.number;
    if (argument.kind == Argument::Kind::Boolean) return argument.integer != 0;
    return argument.integer;
  }

  static BoundArgument constant_of(const Argument& argument, const c10::TypePtr& type) {
    using Kind = Argument::Kind;
    switch (argument.kind) {
      case Kind::None:
        return constant(IValue());
      case Kind::Text:
        return constant(argument.text);
      case Kind::Element:
        return constant(static_cast<std::int64_t>(scalar_type_of(static_cast<ElementType>(argument.integer))));
      case Kind::MemoryFormat:
        return constant(memory_format_of(argument.integer));
      case Kind::Layout:
        return constant(static_cast<std::int64_t>(c10::Layout::Strided));
      case Kind::Device:
        return {BoundArgument::Kind::Device, {}, -1, {}, false};
      default:
        break;
    }
    if (type->kind() == TypeKind::TensorType) return constant(wrapped_number(scalar_of(argument)));
    if (type->kind() == TypeKind::FloatType) return constant(scalar_of(argument).toDouble());
    if (type->kind() == TypeKind::BoolType) return constant(argument.integer != 0);
    return constant(IValue(scalar_of(argument)));
  }

  /// Codes of the file: 1 contiguous, 2 channels_last, 3 channels_last_3d, 4 preserve.
  static std::int64_t memory_format_of(std::int64_t code) {
    constexpr c10::MemoryFormat kFormats[] = {c10::MemoryFormat::Contiguous, c10::MemoryFormat::ChannelsLast, c10::MemoryFormat::ChannelsLast3d,
                                              c10::MemoryFormat::Preserve};
    if (code < 1 || code > 4) throw InputError("", fmt::format("the memory format with code {} is not known", code));
    return static_cast<std::int64_t>(kFormats[code - 1]);
  }

  [[nodiscard]] BoundArgument list(const Argument& argument, const c10::TypePtr& type, int list_size) const {
    if (argument.kind != Argument::Kind::List) {  // one number for a list of fixed length
      const Argument repeated = Argument::list(std::vector<Argument>(static_cast<std::size_t>(std::max(list_size, 1)), argument));
      return list(repeated, type, list_size);
    }
    const auto& elements = argument.elements;
    const bool has_slots = std::any_of(elements.begin(), elements.end(), [](const Argument& e) { return e.is_value(); });
    const bool of_tensors = type->kind() == TypeKind::TensorType, of_optional = type->kind() == TypeKind::OptionalType;
    if (!of_tensors && !of_optional && !has_slots) return constant(constant_list(elements, type));
    BoundArgument result;
    result.kind = of_tensors    ? BoundArgument::Kind::TensorList
                  : of_optional ? BoundArgument::Kind::OptionalTensorList
                                : BoundArgument::Kind::IntegerList;
    for (const Argument& element : elements) {
      if (element.kind == Argument::Kind::None) result.elements.push_back(constant(IValue()));
      else result.elements.push_back(of_tensors || of_optional ? bind(element, c10::TensorType::get(), 0) : bind(element));
    }
    return result;
  }

  static IValue constant_list(const std::vector<Argument>& elements, const c10::TypePtr& type) {
    if (type->kind() == TypeKind::FloatType) {
      c10::List<double> result;
      for (const Argument& e : elements) result.push_back(scalar_of(e).toDouble());
      return result;
    }
    if (type->kind() == TypeKind::BoolType) {
      c10::List<bool> result;
      for (const Argument& e : elements) result.push_back(e.integer != 0);
      return result;
    }
    if (type->kind() == TypeKind::StringType) {
      c10::List<std::string> result;
      for (const Argument& e : elements) result.push_back(e.text);
      return result;
    }
    c10::List<std::int64_t> result;
    for (const Argument& e : elements) result.push_back(scalar_of(e).toLong());
    return result;
  }

  const std::vector<int>& slot_of_;
};

IValue value_of(const BoundArgument& argument, const Frame& frame) {
  using Kind = BoundArgument::Kind;
  switch (argument.kind) {
    case Kind::Constant:
      return argument.constant;
    case Kind::Slot: {
      const IValue& value = frame.slots[static_cast<std::size_t>(argument.slot)];
      return argument.is_tensor && !value.isTensor() && !value.isNone() ? IValue(wrapped_number(value.toScalar())) : value;
    }
    case Kind::Device:
      return frame.device;
    case Kind::IntegerList: {
      c10::List<std::int64_t> list;
      for (const BoundArgument& element : argument.elements) list.push_back(value_of(element, frame).toInt());
      return list;
    }
    case Kind::TensorList: {
      c10::List<at::Tensor> list;
      for (const BoundArgument& element : argument.elements) list.push_back(value_of(element, frame).toTensor());
      return list;
    }
    case Kind::OptionalTensorList: {
      c10::List<TorchOptional<at::Tensor>> list;
      for (const BoundArgument& element : argument.elements) {
        const IValue value = value_of(element, frame);
        list.push_back(value.isNone() ? TorchOptional<at::Tensor>() : value.toTensor());
      }
      return list;
    }
  }
  return {};
}

/// "aten.conv2d.default" -> ("aten::conv2d", ""). A view is run as a reshape: the exporter leaves out copies that its own kernels made needless.
std::pair<std::string, std::string> operator_and_overload(const ProgramStep& step) {
  const std::string name = operator_name(step);
  const std::size_t last = step.target.rfind('.');
  std::string overload = last > 4 ? step.target.substr(last + 1) : "";
  if (overload == "default") overload.clear();
  return {"aten::" + (name == "view" && overload.empty() ? "reshape" : name), overload};
}

bool has_tensor(const ProgramStep& step, const char* argument) {
  const Argument* found = step.find(argument);
  return found != nullptr && found->is_value();
}

/// What becomes of an argument in evaluation, for the operators that know of training.
std::optional<IValue> evaluation_value(const ProgramStep& step, const std::string& argument) {
  static const std::set<std::string> kTrainFlag{"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout", "lstm",
                                                "gru",     "rnn_tanh",        "rnn_relu"};
  const std::string name = operator_name(step);
  if (kTrainFlag.contains(name) && argument == "train") return IValue(false);
  if (name == "rrelu" && argument == "training") return IValue(false);
  if (name == "batch_norm" && argument == "training" && has_tensor(step, "running_mean")) return IValue(false);
  if (name == "instance_norm" && argument == "use_input_stats" && has_tensor(step, "running_mean")) return IValue(false);
  if (name == "scaled_dot_product_attention" && argument == "dropout_p") return IValue(0.0);
  return std::nullopt;
}

/// The dimension of a tensor along which samples lie: the one whose size is the batch, or a multiple of it.
int batch_dimension_of(const Program& program, int value, const BatchSize& batch) {
  if (value < 0) return -1;
  const auto& type = program.values[static_cast<std::size_t>(value)].type;
  if (!type) return 0;
  for (std::size_t d = 0; d < type->sizes.size(); ++d) {
    if (batch.symbol.empty() ? type->sizes[d].value == batch.example : type->sizes[d].expression == batch.symbol) return static_cast<int>(d);
  }
  for (std::size_t d = 0; d < type->sizes.size(); ++d) {
    if (!batch.symbol.empty() && type->sizes[d].expression.find(batch.symbol) != std::string::npos) return static_cast<int>(d);
  }
  return -1;
}

void bind_outputs(const ProgramStep& step, const std::vector<int>& slot_of, BoundStep& bound) {
  for (const int id : step.writes()) bound.outputs.push_back(slot_of[static_cast<std::size_t>(id)]);
}

void bind_randomness(const Program& program, const ProgramStep& step, const BatchSize& batch, BoundStep& bound,
                     std::vector<ImportProblem>& problems) {
  if (!is_random(step)) return;
  const std::string name = operator_name(step);
  bound.random = random_operator(name);
  bound.key = key_of("step " + step.name);
  const std::vector<int> writes = step.writes();
  bound.batch_dimension = batch_dimension_of(program, step.first_value() >= 0 ? step.first_value() : writes.empty() ? -1 : writes.front(), batch);
  if (bound.random == nullptr) {
    problems.push_back({place_of(step), fmt::format("{} draws random numbers in a way that cannot be made independent of the pipeline", name),
                        "use dropout, bernoulli, rand or randn instead"});
  }
}

std::optional<BoundStep> bind_operator(const ProgramStep& step, BoundStep bound, const ArgumentBinder& binder, std::vector<ImportProblem>& problems) {
  const auto [name, overload] = operator_and_overload(step);
  bound.handle = c10::Dispatcher::singleton().findSchema({name.c_str(), overload.c_str()});
  if (!bound.handle) {
    problems.push_back({place_of(step), fmt::format("libtorch {} has no operator {}{}{}", TORCH_VERSION, name, overload.empty() ? "" : ".", overload),
                        "build with a newer libtorch, or write the model with other operators"});
    return std::nullopt;
  }
  std::size_t used = 0, position = 0;
  for (const c10::Argument& declared : bound.handle->schema().arguments()) {
    // "view" has the argument "size", "reshape" calls it "shape"; "dropout_" has "self", its twin "dropout" "input". Other twins of in-place
    // operators keep the names.
    const auto given = std::find_if(step.arguments.begin(), step.arguments.end(), [&](const NamedArgument& a) {
      return a.name == declared.name() || (a.name == "size" && declared.name() == "shape") || (a.name == "self" && declared.name() == "input") ||
             (a.name.empty() && &a - step.arguments.data() == static_cast<std::ptrdiff_t>(position));
    });
    if (given != step.arguments.end()) {
      ++used;
      bound.arguments.push_back(binder.bind(given->value, declared.type(), declared.N().value_or(0)));
    } else if (declared.default_value()) {
      bound.arguments.push_back({BoundArgument::Kind::Constant, *declared.default_value(), -1, {}, false});
    } else if (declared.type()->kind() == TypeKind::OptionalType) {
      bound.arguments.push_back({});
    } else {
      problems.push_back({place_of(step), fmt::format("{} lacks its argument {}", name, declared.name()), "export the model again"});
      return std::nullopt;
    }
    if (const auto value = evaluation_value(step, declared.name())) bound.in_evaluation.emplace_back(position, *value);
    ++position;
  }
  // Newer versions add arguments; where they have their default the old operator does the same.
  if (used < step.arguments.size()) {
    problems.push_back(
        {place_of(step), fmt::format("{} is called with more arguments than libtorch {} knows", name, TORCH_VERSION), "build with a newer libtorch"});
    return std::nullopt;
  }
  return bound;
}

void store(const BoundStep& step, std::vector<IValue>& results, Frame& frame) {
  std::size_t at = 0;
  const auto put = [&](IValue value) {
    if (at < step.outputs.size()) frame.slots[static_cast<std::size_t>(step.outputs[at++])] = std::move(value);
  };
  for (IValue& result : results) {
    if (!result.isTensorList()) put(std::move(result));
    else
      for (const at::Tensor& tensor : result.toTensorVector()) put(tensor);
  }
  TORCH_CHECK(at == step.outputs.size(), "gave ", at, " results where the file has ", step.outputs.size());
}

}  // namespace

c10::ScalarType scalar_type_of(ElementType element) {
  using E = ElementType;
  switch (element) {
    case E::UInt8:
      return c10::kByte;
    case E::Int8:
      return c10::kChar;
    case E::Int16:
      return c10::kShort;
    case E::Int32:
      return c10::kInt;
    case E::Int64:
      return c10::kLong;
    case E::Float16:
      return c10::kHalf;
    case E::Float32:
      return c10::kFloat;
    case E::Float64:
      return c10::kDouble;
    case E::Complex64:
      return c10::kComplexFloat;
    case E::Complex128:
      return c10::kComplexDouble;
    case E::Bool:
      return c10::kBool;
    case E::BFloat16:
      return c10::kBFloat16;
    default:
      throw InputError("", fmt::format("tensors of the type {} cannot be used here", name_of(element)),
                       "convert them to float32 or int64 before export");
  }
}

std::optional<BoundStep> bind_step(const Program& program, int index, const std::vector<int>& slot_of, const BatchSize& batch,
                                   std::vector<ImportProblem>& problems) {
  const ProgramStep& step = program.steps[static_cast<std::size_t>(index)];
  const ArgumentBinder binder(slot_of);
  BoundStep bound;
  bound.step = index;
  bound.name = operator_name(step);
  bind_outputs(step, slot_of, bound);
  if (is_scalar(program, step)) {
    bound.own = arithmetic_operator(step.target);
    if (bound.own == nullptr) {
      problems.push_back({place_of(step), fmt::format("{} on sizes is not known", step.target), "write the arithmetic of sizes with + - * //"});
      return std::nullopt;
    }
    for (const NamedArgument& argument : step.arguments) bound.arguments.push_back(binder.bind(argument.value));
    return bound;
  }
  bind_randomness(program, step, batch, bound, problems);
  try {
    return bind_operator(step, std::move(bound), binder, problems);
  } catch (const InputError& error) {
    problems.push_back({place_of(step), error.what(), error.hint()});
    return std::nullopt;
  }
}

BoundStep bind_size(const Program& program, const SizeSource& source, const std::vector<int>& slot_of) {
  const ProgramStep& step = program.steps[static_cast<std::size_t>(source.step)];
  BoundStep bound;
  bound.step = source.step;
  bound.name = "sym_size";
  bound.own = arithmetic_operator("aten.sym_size.int");
  bound.arguments = {{BoundArgument::Kind::Slot, {}, slot_of[static_cast<std::size_t>(source.value)], {}, false},
                     {BoundArgument::Kind::Constant, IValue(static_cast<std::int64_t>(source.dimension)), -1, {}, false}};
  bind_outputs(step, slot_of, bound);
  return bound;
}

void run_step(const BoundStep& step, Frame& frame) {
  const bool training = frame.context->training;
  std::vector<IValue> stack;
  stack.reserve(step.arguments.size());
  for (const BoundArgument& argument : step.arguments) stack.push_back(value_of(argument, frame));
  if (!training) {
    for (const auto& [position, value] : step.in_evaluation) stack[position] = value;
  }
  if (step.only_in_training && !training) stack.resize(1);
  else if (step.own != nullptr) stack = step.own(step, stack, frame);
  else if (step.random != nullptr) stack = step.random(step, stack, frame);
  else step.handle->callBoxed(&stack);
  store(step, stack, frame);
  for (const int slot : step.dead) frame.slots[static_cast<std::size_t>(slot)] = IValue();
}

}  // namespace pipedream
