#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The common form of imported models: a list of operator calls on named values, free of torch. Readers of file formats make it, layering
/// cuts it, the operators run it.
namespace pipedream {

/// Element types, by PyTorch's names ("float32"). Files have codes of their own for them, which are not those of c10.
enum class ElementType {
  Unknown,
  UInt8,
  Int8,
  Int16,
  Int32,
  Int64,
  Float16,
  Float32,
  Float64,
  Complex32,
  Complex64,
  Complex128,
  Bool,
  BFloat16,
  UInt16,
  UInt32,
  UInt64,
  Float8
};
[[nodiscard]] std::string_view name_of(ElementType type);
/// Bytes per element; 0 for Unknown.
[[nodiscard]] int element_bytes(ElementType type);
[[nodiscard]] bool is_floating(ElementType type);

/// A size of a tensor: a number, or an expression over symbols ("s77") with the value it had when the file was made.
struct Dimension {
  std::int64_t value = 0;
  std::string expression;  ///< empty: fixed
  [[nodiscard]] bool is_symbolic() const { return !expression.empty(); }
  bool operator==(const Dimension&) const = default;
};

/// What the file says of a tensor.
struct TensorType {
  ElementType element = ElementType::Unknown;
  std::vector<Dimension> sizes;
  bool requires_grad = false;
  bool operator==(const TensorType&) const = default;
};

/// A value: result of a step, or an input. Its id is its position in Program::values.
struct ProgramValue {
  enum class Kind { Tensor, Integer, Boolean, Float };
  std::string name;
  Kind kind = Kind::Tensor;
  std::optional<TensorType> type;  ///< of tensors, where the file says it
  std::string expression;          ///< of integers, where the file says it: "Mul(Integer(2), Symbol('s77'))"
  bool operator==(const ProgramValue&) const = default;
};

/// An argument of a step.
struct Argument {
  enum class Kind {
    None,
    Value,
    Integer,
    Float,
    Boolean,
    Text,
    Element,
    MemoryFormat,
    Layout,
    Device,
    List,
    Graph,       ///< a sub-graph: higher-order operators, which are refused
    Unsupported  ///< a variant known from the format that cannot be run; `text` is its name in the file
  };
  Kind kind = Kind::None;
  std::int64_t integer = 0;        ///< Value: id; Integer, Boolean: value; Element: ElementType; MemoryFormat, Layout: the file's code
  double number = 0;               ///< Float
  std::string text;                ///< Text, Device, Graph, Unsupported
  std::vector<Argument> elements;  ///< List
  bool operator==(const Argument&) const = default;

  [[nodiscard]] static Argument none() { return {}; }
  [[nodiscard]] static Argument of_value(int id) { return {Kind::Value, id, 0, {}, {}}; }
  [[nodiscard]] static Argument of_integer(std::int64_t value) { return {Kind::Integer, value, 0, {}, {}}; }
  [[nodiscard]] static Argument of_float(double value) { return {Kind::Float, 0, value, {}, {}}; }
  [[nodiscard]] static Argument of_boolean(bool value) { return {Kind::Boolean, value ? 1 : 0, 0, {}, {}}; }
  [[nodiscard]] static Argument of_text(std::string value) { return {Kind::Text, 0, 0, std::move(value), {}}; }
  [[nodiscard]] static Argument list(std::vector<Argument> elements) { return {Kind::List, 0, 0, {}, std::move(elements)}; }
  [[nodiscard]] bool is_value() const { return kind == Kind::Value; }
};

struct NamedArgument {
  std::string name;  ///< as the operator's schema calls it; empty: by position
  Argument value;
  bool operator==(const NamedArgument&) const = default;
};

/// One module on the way from the model to a step. `key` tells calls of the same module apart.
struct ModuleEntry {
  std::string key, path, type;
  bool operator==(const ModuleEntry&) const = default;
};

/// One returned value of a step, or one returned list of values.
struct StepOutput {
  std::vector<int> values;
  bool is_list = false;
  bool operator==(const StepOutput&) const = default;
};

/// A call of an operator. Arguments that are not named have their default.
struct ProgramStep {
  std::string name;    ///< of the node in its file
  std::string target;  ///< "aten.conv2d.default", "_operator.mul"
  std::vector<NamedArgument> arguments;
  std::vector<StepOutput> outputs;
  std::vector<ModuleEntry> modules;  ///< from the model (first) to the innermost module; empty if the file does not say
  std::string source;                ///< "model.py:12 in forward: return self.fc(x)"; empty if the file does not say
  bool operator==(const ProgramStep&) const = default;

  [[nodiscard]] const Argument* find(std::string_view argument) const;
  /// The first argument, if it is a value: the one an in-place operator changes. -1 if it is not.
  [[nodiscard]] int first_value() const;
  /// Ids of all values the step reads, in order, with repetitions.
  [[nodiscard]] std::vector<int> reads() const;
  [[nodiscard]] std::vector<int> writes() const;
};

/// A parameter, buffer or constant tensor that is an input of the graph.
struct ProgramTensor {
  std::string name;  ///< the state_dict key, or the name of a constant
  int value = 0;
  bool persistent = true;  ///< buffers: belongs to the state_dict
  bool operator==(const ProgramTensor&) const = default;
};

struct ProgramInput {
  std::string name;  ///< of the argument of forward
  int value = 0;
  bool operator==(const ProgramInput&) const = default;
};

struct ProgramOutput {
  int value = -1;  ///< -1: a constant
  bool is_loss = false;
  bool operator==(const ProgramOutput&) const = default;
};

/// Limits of a symbol or expression; nothing: no limit.
struct SymbolRange {
  std::optional<std::int64_t> minimum, maximum;
  bool operator==(const SymbolRange&) const = default;
};

struct Program {
  std::vector<ProgramValue> values;
  std::vector<ProgramStep> steps;
  std::vector<ProgramInput> inputs;
  std::vector<ProgramTensor> parameters, buffers, constants;
  std::vector<ProgramOutput> outputs;
  std::map<std::string, SymbolRange> ranges;
  std::vector<std::string> guards;  ///< conditions the exporter recorded, as Python text; shown, never evaluated
  std::string producer;             ///< "torch 2.14.1"
  /// What is in the file's signature and cannot be trained here, each with a remedy; check_program() reports it.
  std::vector<std::pair<std::string, std::string>> unsupported;
  bool operator==(const Program&) const = default;

  [[nodiscard]] std::optional<int> find_value(std::string_view name) const;
};

/// Checks ids, that every value is made once and before it is read. Readers call it; a Program made by hand should be checked too.
/// @param place what errors name as the file @throws InputError
void validate(const Program& program, const std::string& place);

/// One line per input, tensor, step and output.
std::ostream& operator<<(std::ostream& out, const Program& program);
/// "aten.conv2d.default(x, p_weight, None, [1, 1])".
[[nodiscard]] std::string print_step(const Program& program, const ProgramStep& step);
/// "float32[s77, 3, 8, 8]".
[[nodiscard]] std::string print_type(const TensorType& type);

/// The operator's name without namespace and overload: "conv2d" of "aten.conv2d.default"; "mul" of "_operator.mul".
[[nodiscard]] std::string operator_name(const ProgramStep& step);

}  // namespace pipedream
