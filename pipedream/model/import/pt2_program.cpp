#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/pt2_file.hpp"
#include "pipedream/model/import/pt2_json.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kSchemaMajor = 8;
constexpr const char* kBeforeDecomposition = "save the program before run_decompositions()";
constexpr std::size_t kLongestCode = 90;

/// "Symbol('s77', positive=True, integer=True)" is the symbol s77; other expressions stay as they are.
std::string short_expression(const std::string& text) {
  constexpr std::string_view kSymbol = "Symbol('";
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t symbol = text.find(kSymbol, at);
    const std::size_t quote = symbol == std::string::npos ? symbol : text.find('\'', symbol + kSymbol.size());
    const std::size_t close = quote == std::string::npos ? quote : text.find(')', quote);
    if (close == std::string::npos) return result + text.substr(at);
    result += text.substr(at, symbol - at) + text.substr(symbol + kSymbol.size(), quote - symbol - kSymbol.size());
    at = close + 1;
  }
  return result;
}

/// Turns the JSON of one graph into a Program. Names become ids.
class Reader {
 public:
  explicit Reader(const JsonView& root) : root_(root) {}

  Program read() {
    check_version();
    const JsonView module = root_.at("graph_module");
    const JsonView graph = module.at("graph");
    read_tables(graph);
    read_inputs(module);
    for (const JsonView& node : graph.at("nodes").elements()) read_node(node);
    read_outputs(module, graph);
    read_ranges();
    return std::move(program_);
  }

 private:
  void check_version() {
    const std::int64_t major = root_.at("schema_version").at("major").integer();
    if (major != kSchemaMajor) {
      root_.at("schema_version")
          .fail(fmt::format("this program was written in version {} of the format; version {} is read", major, kSchemaMajor),
                "export the model with a version of torch that writes it (2.9 and later do)");
    }
    program_.producer = root_.find("torch_version") ? "torch " + root_.at("torch_version").string() : "torch";
    if (const auto verifiers = root_.find("verifiers")) {
      for (const JsonView& verifier : verifiers->elements()) {
        if (verifier.string() == "TRAINING") continue;
        program_.unsupported.emplace_back(
            fmt::format("the program is in the dialect {}: it was decomposed, and its backward would be wrong", verifier.string()),
            kBeforeDecomposition);
      }
    }
    if (const auto guards = root_.find("guards_code")) {
      for (const JsonView& guard : guards->elements()) program_.guards.push_back(guard.string());
    }
  }

  void read_tables(const JsonView& graph) {
    const auto members = [&](const char* key, const auto& use) {
      const auto table = graph.find(key);
      if (!table) return;
      if (!table->json().is_object()) table->fail("an object is expected");
      for (const auto& item : table->json().items()) use(item.key(), table->at(item.key()));
    };
    members("tensor_values", [&](const std::string& name, const JsonView& view) { tensors_.emplace(name, tensor_type_of(view)); });
    members("sym_int_values", [&](const std::string& name, const JsonView& view) {
      const auto [kind, content] = variant_of(view);
      integers_.emplace(name, kind == "as_expr" ? short_expression(content.at("expr_str").string()) : fmt::format("{}", content.integer()));
    });
  }

  int define(const std::string& name, ProgramValue::Kind kind, const JsonView& place) {
    if (!ids_.emplace(name, static_cast<int>(program_.values.size())).second) place.fail(fmt::format("the value {} is made twice", name));
    ProgramValue value{name, kind, {}, {}};
    if (const auto type = tensors_.find(name); kind == ProgramValue::Kind::Tensor && type != tensors_.end()) value.type = type->second;
    if (const auto text = integers_.find(name); kind == ProgramValue::Kind::Integer && text != integers_.end()) value.expression = text->second;
    program_.values.push_back(std::move(value));
    return static_cast<int>(program_.values.size()) - 1;
  }

  Argument reference(const JsonView& name) const {
    const auto at = ids_.find(name.string());
    if (at == ids_.end()) name.fail(fmt::format("the value {} is read before it is made", name.string()));
    return Argument::of_value(at->second);
  }

  template <typename Each>
  Argument list(const JsonView& view, const Each& each) const {
    std::vector<Argument> elements;
    for (const JsonView& element : view.elements()) elements.push_back(each(element));
    return Argument::list(std::move(elements));
  }

  static Argument float_of(const JsonView& view) {
    if (!view.json().is_string()) return Argument::of_float(view.number());
    const std::string text = view.string();  // numbers that JSON has no form for
    if (text == "Infinity") return Argument::of_float(std::numeric_limits<double>::infinity());
    if (text == "-Infinity") return Argument::of_float(-std::numeric_limits<double>::infinity());
    if (text == "NaN") return Argument::of_float(std::numeric_limits<double>::quiet_NaN());
    view.fail("a number is expected, found \"" + text + "\"");
  }

  static Argument code_of(const JsonView& view, Argument::Kind kind) {
    Argument result = Argument::of_integer(view.integer());
    result.kind = kind;
    return result;
  }

  static Argument element_argument(const JsonView& view) {
    const ElementType element = element_of_code(view.integer());
    if (element == ElementType::Unknown) view.fail(fmt::format("the element type with code {} is not known", view.integer()));
    Argument result = Argument::of_integer(static_cast<std::int64_t>(element));
    result.kind = Argument::Kind::Element;
    return result;
  }

  static Argument device_of(const JsonView& view) {
    Argument result = Argument::of_text(view.at("type").string());
    result.kind = Argument::Kind::Device;
    return result;
  }

  /// {"as_name": "sym_size_int"} or {"as_int": 4}, and the same of booleans and floats.
  Argument symbolic(const JsonView& view) const {
    const auto [kind, content] = variant_of(view);
    if (kind == "as_name") return reference(content);
    if (kind == "as_int") return Argument::of_integer(content.integer());
    if (kind == "as_bool") return Argument::of_boolean(content.boolean());
    if (kind == "as_float") return float_of(content);
    view.fail(fmt::format("the variant {} is not known", kind));
  }

  Argument tensor(const JsonView& view) const { return reference(view.at("name")); }

  Argument optional_tensor(const JsonView& view) const {
    const auto [kind, content] = variant_of(view);
    if (kind == "as_none") return Argument::none();
    if (kind == "as_tensor") return tensor(content);
    view.fail(fmt::format("the variant {} is not known", kind));
  }

  Argument argument(const JsonView& view) const {
    const auto [kind, content] = variant_of(view);
    const auto integer = [](const JsonView& v) { return Argument::of_integer(v.integer()); };
    const auto boolean = [](const JsonView& v) { return Argument::of_boolean(v.boolean()); };
    const auto text = [](const JsonView& v) { return Argument::of_text(v.string()); };
    if (kind == "as_none") return Argument::none();
    if (kind == "as_tensor") return tensor(content);
    if (kind == "as_tensors") return list(content, [&](const JsonView& v) { return tensor(v); });
    if (kind == "as_optional_tensor") return optional_tensor(content);
    if (kind == "as_optional_tensors") return list(content, [&](const JsonView& v) { return optional_tensor(v); });
    if (kind == "as_int") return integer(content);
    if (kind == "as_ints") return list(content, integer);
    if (kind == "as_float") return float_of(content);
    if (kind == "as_floats") return list(content, float_of);
    if (kind == "as_bool") return boolean(content);
    if (kind == "as_bools") return list(content, boolean);
    if (kind == "as_string") return text(content);
    if (kind == "as_strings") return list(content, text);
    if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float") return symbolic(content);
    if (kind == "as_sym_ints" || kind == "as_sym_bools" || kind == "as_sym_floats")
      return list(content, [&](const JsonView& v) { return symbolic(v); });
    if (kind == "as_scalar_type") return element_argument(content);
    if (kind == "as_memory_format") return code_of(content, Argument::Kind::MemoryFormat);
    if (kind == "as_layout") return code_of(content, Argument::Kind::Layout);
    if (kind == "as_device") return device_of(content);
    return unsupported(view, kind, content);
  }

  static Argument unsupported(const JsonView& view, const std::string& kind, const JsonView& content) {
    constexpr std::array<std::string_view, 8> kKnown{"as_nested_tensors", "as_int_lists",  "as_float_lists",        "as_complex",
                                                     "as_operator",       "as_custom_obj", "as_string_to_argument", "as_string_list"};
    Argument result;
    if (kind == "as_graph") {
      result = Argument::of_text(content.at("name").string());
      result.kind = Argument::Kind::Graph;
    } else if (std::find(kKnown.begin(), kKnown.end(), kind) != kKnown.end()) {
      result = Argument::of_text(kind);
      result.kind = Argument::Kind::Unsupported;
    } else {
      view.fail(fmt::format("the argument variant {} is not known", kind),
                "the file was written by a newer torch than this program knows: please report it");
    }
    return result;
  }

  void read_inputs(const JsonView& module) {
    std::vector<std::string> names;
    for (const JsonView& call : module.at("module_call_graph").elements()) {
      const auto signature = call.find("signature");
      if (!signature || !call.at("fqn").string().empty()) continue;
      if (const auto list_of_names = signature->find("forward_arg_names")) {
        for (const JsonView& name : list_of_names->elements()) names.push_back(name.string());
      }
    }
    std::size_t position = 0;
    for (const JsonView& spec : module.at("signature").at("input_specs").elements()) read_input(spec, names, position);
  }

  void read_input(const JsonView& spec, const std::vector<std::string>& names, std::size_t& position) {
    const auto [kind, content] = variant_of(spec);
    const auto tensor_input = [&](const char* key) {
      return ProgramTensor{content.at(key).string(), define(content.at("arg").at("name").string(), ProgramValue::Kind::Tensor, content), true};
    };
    if (kind == "parameter") program_.parameters.push_back(tensor_input("parameter_name"));
    else if (kind == "tensor_constant") program_.constants.push_back(tensor_input("tensor_constant_name"));
    else if (kind == "buffer") {
      program_.buffers.push_back(tensor_input("buffer_name"));
      program_.buffers.back().persistent = content.at("persistent").boolean();
    } else if (kind == "constant_input") ++position;
    else if (kind == "user_input") read_user_input(content, position < names.size() ? names[position] : "", position);
    else if (kind == "custom_obj" || kind == "token")
      program_.unsupported.emplace_back(fmt::format("an input of the kind {}: Python objects cannot be run here", kind), "pass tensors");
    else spec.fail(fmt::format("the input kind {} is not known", kind));
  }

  void read_user_input(const JsonView& spec, const std::string& name, std::size_t& position) {
    const auto [kind, content] = variant_of(spec.at("arg"));
    ++position;
    if (kind == "as_tensor") {
      const std::string id = content.at("name").string();
      program_.inputs.push_back({name.empty() ? id : name, define(id, ProgramValue::Kind::Tensor, content)});
    } else if (kind == "as_sym_int" && content.json().is_object() && content.find("as_name")) {
      program_.unsupported.emplace_back(
          fmt::format("the input {} is a number that may change; only tensors may be inputs", content.at("as_name").string()),
          "pass a tensor, or fix the number");
      define(content.at("as_name").string(), ProgramValue::Kind::Integer, content);
    }  // numbers, None and the like are part of the nodes already
  }

  void read_node(const JsonView& node) {
    ProgramStep step;
    step.name = node.find("name") ? node.at("name").string() : "";
    step.target = node.at("target").string();
    if (step.target.starts_with("torch.ops.")) step.target.erase(0, 10);
    for (const JsonView& input : node.at("inputs").elements()) {
      step.arguments.push_back({input.find("name") ? input.at("name").string() : "", argument(input.at("arg"))});
    }
    for (const JsonView& output : node.at("outputs").elements()) step.outputs.push_back(read_output(output));
    if (step.name.empty() && !step.writes().empty()) step.name = program_.values[static_cast<std::size_t>(step.writes().front())].name;
    if (const auto metadata = node.find("metadata")) read_metadata(*metadata, step);
    program_.steps.push_back(std::move(step));
  }

  StepOutput read_output(const JsonView& view) {
    const auto [kind, content] = variant_of(view);
    StepOutput output;
    if (kind == "as_tensor") output.values = {define(content.at("name").string(), ProgramValue::Kind::Tensor, content)};
    else if (kind == "as_tensors" || kind == "as_optional_tensors") {
      output.is_list = true;
      for (const JsonView& element : content.elements()) {
        const JsonView& held = kind == "as_tensors" ? element : variant_of(element).second;
        output.values.push_back(define(held.at("name").string(), ProgramValue::Kind::Tensor, held));
      }
    } else if (kind == "as_none") return output;
    else if (kind == "as_sym_int" || kind == "as_sym_bool" || kind == "as_sym_float") {
      const auto value_kind = kind == "as_sym_int"    ? ProgramValue::Kind::Integer
                              : kind == "as_sym_bool" ? ProgramValue::Kind::Boolean
                                                      : ProgramValue::Kind::Float;
      output.values = {define(content.at("as_name").string(), value_kind, content)};
    } else view.fail(fmt::format("the output variant {} is not known", kind));
    return output;
  }

  static void read_metadata(const JsonView& metadata, ProgramStep& step) {
    const auto text = [&](const char* key) {
      const auto found = metadata.find(key);
      return found && found->json().is_string() ? found->string() : std::string();
    };
    const std::string stack = text("nn_module_stack");
    for (std::size_t at = 0; at < stack.size();) {
      const std::size_t end = std::min(stack.find(';', at), stack.size());
      const std::string entry = stack.substr(at, end - at);
      const std::size_t first = entry.find(','), second = first == std::string::npos ? first : entry.find(',', first + 1);
      if (second != std::string::npos)
        step.modules.push_back({entry.substr(0, first), entry.substr(first + 1, second - first - 1), entry.substr(second + 1)});
      at = end + 1;
    }
    // Sizes carry a placeholder instead of modules.
    if (!step.modules.empty() && step.modules.front().key.starts_with("_empty_nn_module_stack")) step.modules.clear();
    step.source = source_of(text("stack_trace"));
  }

  /// "  File "dir/model.py", line 12, in forward\n    return self.fc(x)" becomes "model.py:12 in forward: return self.fc(x)".
  static std::string source_of(const std::string& trace) {
    // The innermost frame of the model's author; torch's own are of no help to them.
    std::size_t file = trace.rfind("File \"");
    for (std::size_t at = file; at != std::string::npos; at = at == 0 ? std::string::npos : trace.rfind("File \"", at - 1)) {
      const std::string path = trace.substr(at + 6, trace.find('"', at + 6) - at - 6);
      if (path.find("/torch/") != std::string::npos || path.starts_with("<")) continue;
      file = at;
      break;
    }
    if (file == std::string::npos || trace.compare(file + 6, 1, "<") == 0) return {};
    const std::size_t quote = trace.find('"', file + 6), line = trace.find("line ", file), newline = std::min(trace.find('\n', file), trace.size());
    if (quote == std::string::npos || line == std::string::npos || quote > newline || line > newline) return {};
    std::string path = trace.substr(file + 6, quote - file - 6);
    path = path.substr(path.rfind('/') + 1);
    const std::size_t comma = trace.find(',', line);
    std::string result = fmt::format("{}:{}", path, trace.substr(line + 5, std::min(comma, newline) - line - 5));
    if (comma != std::string::npos && comma < newline) result += trace.substr(comma + 1, newline - comma - 1);
    std::string code = trace.substr(std::min(newline + 1, trace.size()));
    code = code.substr(0, code.find('\n'));
    const std::size_t begin = code.find_first_not_of(' ');
    if (begin == std::string::npos) return result;
    code.erase(0, begin);
    return result + ": " + (code.size() > kLongestCode ? code.substr(0, kLongestCode) + "..." : code);
  }

  void read_outputs(const JsonView& module, const JsonView& graph) {
    const std::vector<JsonView> specs = module.at("signature").at("output_specs").elements();
    if (specs.size() > graph.at("outputs").elements().size()) graph.at("outputs").fail("there are fewer outputs than the signature names");
    for (const JsonView& spec : specs) {
      const auto [kind, content] = variant_of(spec);
      if (kind == "user_output") program_.outputs.push_back({output_value(content.at("arg")), false});
      else if (kind == "loss_output") program_.outputs.push_back({output_value(JsonView(content.at("arg"))), true});
      else if (kind == "parameter_mutation")
        program_.unsupported.emplace_back("the forward changes the parameter " + content.at("parameter_name").string(),
                                          "change parameters in the optimizer only, or make it a buffer");
      else if (kind == "user_input_mutation")
        program_.unsupported.emplace_back("the forward changes its input " + content.at("user_input_name").string(), "work on a copy: x = x.clone()");
      else if (kind == "buffer_mutation")
        program_.unsupported.emplace_back(
            "the forward returns the buffer " + content.at("buffer_name").string() + " anew: the program was decomposed", kBeforeDecomposition);
      else program_.unsupported.emplace_back(fmt::format("an output of the kind {}", kind), "return tensors");
    }
  }

  int output_value(const JsonView& view) const {
    if (view.json().is_object() && view.json().contains("name")) return static_cast<int>(reference(view.at("name")).integer);
    const auto [kind, content] = variant_of(view);
    return kind == "as_tensor" ? static_cast<int>(tensor(content).integer) : -1;
  }

  void read_ranges() {
    const auto ranges = root_.find("range_constraints");
    if (!ranges) return;
    if (!ranges->json().is_object()) ranges->fail("an object is expected");
    for (const auto& item : ranges->json().items()) {
      const JsonView view = ranges->at(item.key());
      SymbolRange range;
      if (const auto minimum = view.find("min_val"); minimum && minimum->json().is_number_integer()) range.minimum = minimum->integer();
      if (const auto maximum = view.find("max_val"); maximum && maximum->json().is_number_integer()) range.maximum = maximum->integer();
      program_.ranges.emplace(item.key(), range);
    }
  }

  const JsonView& root_;
  Program program_;
  std::unordered_map<std::string, int> ids_;
  std::unordered_map<std::string, TensorType> tensors_;
  std::unordered_map<std::string, std::string> integers_;
};

}  // namespace

ElementType element_of_code(std::int64_t code) {
  using E = ElementType;
  constexpr std::array<E, 14> kCodes{E::Unknown, E::UInt8,   E::Int8,      E::Int16,     E::Int32,      E::Int64, E::Float16,
                                     E::Float32, E::Float64, E::Complex32, E::Complex64, E::Complex128, E::Bool,  E::BFloat16};
  if (code >= 0 && code < static_cast<std::int64_t>(kCodes.size())) return kCodes[static_cast<std::size_t>(code)];
  if (code == 28) return E::UInt16;
  if (code >= 29 && code <= 33) return E::Float8;
  if (code == 34) return E::UInt32;
  if (code == 35) return E::UInt64;
  return E::Unknown;
}

std::pair<std::string, JsonView> variant_of(const JsonView& view) {
  if (!view.json().is_object() || view.json().size() != 1) view.fail("an object with one key is expected");
  const std::string key = view.json().begin().key();
  if (view.json().begin()->is_null()) view.fail(fmt::format("\"{}\" has no value", key));
  return {key, view.at(key)};
}

Dimension dimension_of(const JsonView& view) {
  const auto [kind, content] = variant_of(view);
  if (kind == "as_int") return {content.integer(), {}};
  if (kind != "as_expr") view.fail(fmt::format("the variant {} is not known", kind));
  Dimension result{0, short_expression(content.at("expr_str").string())};
  if (const auto hint = content.find("hint")) result.value = variant_of(*hint).second.integer();
  return result;
}

TensorType tensor_type_of(const JsonView& view) {
  TensorType type;
  type.element = element_of_code(view.at("dtype").integer());
  for (const JsonView& size : view.at("sizes").elements()) type.sizes.push_back(dimension_of(size));
  type.requires_grad = view.at("requires_grad").boolean();
  return type;
}

Program program_from_json(std::string_view text, const std::string& place) {
  const Json json = parse_json(text, place);
  Program program = Reader(JsonView(json, place)).read();
  validate(program, place);
  return program;
}

}  // namespace pipedream
