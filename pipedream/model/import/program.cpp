#include "pipedream/model/import/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ostream>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

struct ElementInfo {
  std::string_view name;
  int bytes;
  bool floating;
};
constexpr std::array<ElementInfo, 18> kElements{{{"unknown", 0, false},
                                                 {"uint8", 1, false},
                                                 {"int8", 1, false},
                                                 {"int16", 2, false},
                                                 {"int32", 4, false},
                                                 {"int64", 8, false},
                                                 {"float16", 2, true},
                                                 {"float32", 4, true},
                                                 {"float64", 8, true},
                                                 {"complex32", 4, false},
                                                 {"complex64", 8, false},
                                                 {"complex128", 16, false},
                                                 {"bool", 1, false},
                                                 {"bfloat16", 2, true},
                                                 {"uint16", 2, false},
                                                 {"uint32", 4, false},
                                                 {"uint64", 8, false},
                                                 {"float8", 1, true}}};

const ElementInfo& info(ElementType type) { return kElements.at(static_cast<std::size_t>(type)); }

void collect_values(const Argument& argument, std::vector<int>& ids) {
  if (argument.is_value()) ids.push_back(static_cast<int>(argument.integer));
  for (const Argument& element : argument.elements) collect_values(element, ids);
}

std::string print_argument(const Program& program, const Argument& argument) {
  using Kind = Argument::Kind;
  switch (argument.kind) {
    case Kind::None:
      return "None";
    case Kind::Value:
      return program.values.at(static_cast<std::size_t>(argument.integer)).name;
    case Kind::Integer:
      return fmt::format("{}", argument.integer);
    case Kind::Float:
      return fmt::format("{}", argument.number);
    case Kind::Boolean:
      return argument.integer != 0 ? "True" : "False";
    case Kind::Text:
      return fmt::format("'{}'", argument.text);
    case Kind::Element:
      return std::string(name_of(static_cast<ElementType>(argument.integer)));
    case Kind::MemoryFormat:
      return fmt::format("memory_format:{}", argument.integer);
    case Kind::Layout:
      return fmt::format("layout:{}", argument.integer);
    case Kind::Device:
      return fmt::format("device:{}", argument.text);
    case Kind::Graph:
      return fmt::format("graph:{}", argument.text);
    case Kind::Unsupported:
      return fmt::format("unsupported:{}", argument.text);
    case Kind::List:
      break;
  }
  std::string text = "[";
  for (const Argument& element : argument.elements) text += (text.size() > 1 ? ", " : "") + print_argument(program, element);
  return text + "]";
}

/// Every graph input and result, in order, must be a new id inside `values`.
class Definitions {
 public:
  Definitions(const Program& program, const std::string& place) : program_(program), place_(place), defined_(program.values.size(), false) {}

  void define(int id, const std::string& by) {
    check_id(id, by);
    if (defined_[static_cast<std::size_t>(id)]) fail(fmt::format("{} is made twice", program_.values[static_cast<std::size_t>(id)].name));
    defined_[static_cast<std::size_t>(id)] = true;
  }
  void read(int id, const std::string& by) const {
    check_id(id, by);
    if (!defined_[static_cast<std::size_t>(id)])
      fail(fmt::format("{} reads {} before it is made", by, program_.values[static_cast<std::size_t>(id)].name));
  }

 private:
  void check_id(int id, const std::string& by) const {
    if (id < 0 || static_cast<std::size_t>(id) >= program_.values.size()) fail(fmt::format("{} names the unknown value {}", by, id));
  }
  [[noreturn]] void fail(const std::string& what) const { throw InputError(place_, "the graph is damaged: " + what, "export the model again"); }

  const Program& program_;
  const std::string& place_;
  std::vector<bool> defined_;
};

}  // namespace

std::string_view name_of(ElementType type) { return info(type).name; }
int element_bytes(ElementType type) { return info(type).bytes; }
bool is_floating(ElementType type) { return info(type).floating; }

const Argument* ProgramStep::find(std::string_view argument) const {
  const auto at = std::find_if(arguments.begin(), arguments.end(), [&](const NamedArgument& a) { return a.name == argument; });
  return at == arguments.end() ? nullptr : &at->value;
}

int ProgramStep::first_value() const {
  return !arguments.empty() && arguments.front().value.is_value() ? static_cast<int>(arguments.front().value.integer) : -1;
}

std::vector<int> ProgramStep::reads() const {
  std::vector<int> ids;
  for (const NamedArgument& argument : arguments) collect_values(argument.value, ids);
  return ids;
}

std::vector<int> ProgramStep::writes() const {
  std::vector<int> ids;
  for (const StepOutput& output : outputs) ids.insert(ids.end(), output.values.begin(), output.values.end());
  return ids;
}

std::optional<int> Program::find_value(std::string_view name) const {
  const auto at = std::find_if(values.begin(), values.end(), [&](const ProgramValue& value) { return value.name == name; });
  if (at == values.end()) return std::nullopt;
  return static_cast<int>(at - values.begin());
}

void validate(const Program& program, const std::string& place) {
  Definitions definitions(program, place);
  for (const auto* tensors : {&program.parameters, &program.buffers, &program.constants}) {
    for (const ProgramTensor& tensor : *tensors) definitions.define(tensor.value, tensor.name);
  }
  for (const ProgramInput& input : program.inputs) definitions.define(input.value, input.name);
  for (const ProgramStep& step : program.steps) {
    for (const int id : step.reads()) definitions.read(id, step.name);
    for (const int id : step.writes()) definitions.define(id, step.name);
  }
  for (const ProgramOutput& output : program.outputs) {
    if (output.value >= 0) definitions.read(output.value, "the output");
  }
}

std::string operator_name(const ProgramStep& step) {
  const auto first = step.target.find('.');
  if (first == std::string::npos) return step.target;
  const auto last = step.target.rfind('.');
  return last == first ? step.target.substr(first + 1) : step.target.substr(first + 1, last - first - 1);
}

std::string print_type(const TensorType& type) {
  std::string text = std::string(name_of(type.element)) + "[";
  for (std::size_t i = 0; i < type.sizes.size(); ++i) {
    const Dimension& size = type.sizes[i];
    text += (i > 0 ? ", " : "") + (size.is_symbolic() ? size.expression : fmt::format("{}", size.value));
  }
  return text + "]";
}

std::string print_step(const Program& program, const ProgramStep& step) {
  std::string text = step.target + "(";
  for (std::size_t i = 0; i < step.arguments.size(); ++i) {
    const NamedArgument& argument = step.arguments[i];
    text += (i > 0 ? ", " : "") + (argument.name.empty() ? "" : argument.name + "=") + print_argument(program, argument.value);
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Program& program) {
  const auto show = [&](std::string_view what, const std::string& name, int id) {
    const ProgramValue& value = program.values.at(static_cast<std::size_t>(id));
    out << what << " " << name << " = " << value.name << (value.type ? ": " + print_type(*value.type) : "") << "\n";
  };
  for (const ProgramInput& input : program.inputs) show("input", input.name, input.value);
  for (const ProgramTensor& tensor : program.parameters) show("parameter", tensor.name, tensor.value);
  for (const ProgramTensor& tensor : program.buffers) show("buffer", tensor.name, tensor.value);
  for (const ProgramTensor& tensor : program.constants) show("constant", tensor.name, tensor.value);
  for (const ProgramStep& step : program.steps) {
    std::string results;
    for (const int id : step.writes()) results += (results.empty() ? "" : ", ") + program.values.at(static_cast<std::size_t>(id)).name;
    out << results << " = " << print_step(program, step) << (step.modules.empty() ? "" : "  # " + step.modules.back().path) << "\n";
  }
  for (const ProgramOutput& output : program.outputs) {
    out << (output.is_loss ? "loss " : "output ") << (output.value < 0 ? "constant" : program.values.at(static_cast<std::size_t>(output.value)).name)
        << "\n";
  }
  return out;
}

}  // namespace pipedream
