#include "pipedream/model/import/torchscript.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <memory>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/torch_operators.hpp"

namespace pipedream {
namespace {

namespace jit = torch::jit;
using c10::IValue;

constexpr std::array<std::int64_t, 2> kBatches{3, 5};
constexpr std::int64_t kMostIterations = 4096;
constexpr const char* kExportInstead = "export the model with torch.export instead (docs/import.md)";

/// What a value of the script is while it is followed: what it was in both runs, and what stands for it in the Program.
struct Item {
  std::array<IValue, 2> runs;
  int id = -1;             ///< of the Program's value; -1: a constant, an object or a list
  bool is_list = false;    ///< `elements` are the truth
  bool is_object = false;  ///< a module; `path` is where it is
  std::vector<std::shared_ptr<Item>> elements;
  std::string path;
};
using ItemPtr = std::shared_ptr<Item>;

ElementType element_of(at::ScalarType type) {
  for (int e = 1; e <= static_cast<int>(ElementType::UInt64); ++e) {
    const auto element = static_cast<ElementType>(e);
    if (element >= ElementType::UInt16 || element == ElementType::Complex32) continue;
    if (scalar_type_of(element) == type) return element;
  }
  return ElementType::Unknown;
}

/// "__torch__.torch.nn.modules.linear.___torch_mangle_3.Linear" -> "torch.nn.modules.linear.Linear".
std::string class_name(const std::string& qualified) {
  std::string text = qualified.starts_with("__torch__.") ? qualified.substr(10) : qualified, result;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, end - at);
    if (!part.starts_with("___torch_mangle_")) result += (result.empty() ? "" : ".") + part;
    at = end + 1;
  }
  return result;
}

/// A size in both runs as a dimension: fixed, or a multiple of the batch.
Dimension dimension_of_runs(std::int64_t a, std::int64_t b) {
  if (a == b) return {a, {}};
  if (a * kBatches[1] == b * kBatches[0]) return {a, a == kBatches[0] ? "batch" : fmt::format("({}/{} * batch)", a, kBatches[0])};
  return {a, fmt::format("(a size of {} and {})", a, b)};
}

class Follower {
 public:
  Follower(const std::string& file, const jit::Module& module) : file_(file), module_(module) {}

  Pt2File run(const std::vector<ScriptInput>& inputs) {
    const c10::NoGradGuard no_grad;
    collect_tensors();
    const jit::Method method = module_.get_method("forward");
    const auto graph = method.graph();
    std::vector<ItemPtr> arguments{object_item(module_._ivalue(), "")};
    if (graph->inputs().size() != inputs.size() + 1) {
      throw UsageError(fmt::format("forward of {} takes {} inputs, {} were described", file_, graph->inputs().size() - 1, inputs.size()),
                       "describe all: :input=3x32x32+i10");
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) arguments.push_back(input_item(graph->inputs()[i + 1]->debugName(), inputs[i]));
    stack_.push_back({"", "", class_name(module_.type()->name()->qualifiedName())});
    finish(emit_block(*graph->block(), arguments));
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse_node(const jit::Node& node, const std::string& what, const std::string& remedy = kExportInstead) const {
    throw InputError(file_, fmt::format("{}: {}: {}", stack_.back().path.empty() ? "forward" : stack_.back().path, node.kind().toQualString(), what),
                     remedy);
  }

  /// Parameters and buffers with the values they have before anything runs.
  void collect_tensors() {
    std::map<const void*, std::string> storages;
    const auto add = [&](const std::string& name, const at::Tensor& tensor, bool is_parameter) {
      StoredTensor stored;
      stored.name = name;
      stored.is_parameter = is_parameter;
      stored.requires_grad = is_parameter && tensor.requires_grad();
      stored.element = element_of(tensor.scalar_type());
      stored.sizes = tensor.sizes().vec();
      stored.storage = storages.emplace(tensor.data_ptr(), name).first->second;  // equal memory: a tie
      store(stored, tensor);
      result_.weights.push_back(stored);
      keys_[tensor.unsafeGetTensorImpl()] = name;
      parameters_[name] = is_parameter;
    };
    for (const auto& parameter : module_.named_parameters()) add(parameter.name, parameter.value, true);
    if (result_.weights.empty()) {
      throw InputError(file_, "the file has no parameters: it was frozen for inference",
                       "save it without torch.jit.freeze and optimize_for_inference");
    }
    for (const auto& buffer : module_.named_buffers()) add(buffer.name, buffer.value, false);
  }

  void store(StoredTensor& stored, const at::Tensor& tensor) {
    auto copy = std::make_shared<at::Tensor>(tensor.detach().contiguous().clone());
    stored.strides = copy->strides().vec();
    result_.storages.emplace(stored.storage, ZipData{{static_cast<const char*>(copy->data_ptr()), copy->nbytes()}, copy});
  }

  int new_value(const std::string& name, const std::array<IValue, 2>& runs) {
    ProgramValue value{fmt::format("{}_{}", name, program().values.size()), ProgramValue::Kind::Tensor, {}, {}};
    if (runs[0].isTensor()) {
      const at::Tensor a = runs[0].toTensor(), b = runs[1].toTensor();
      TensorType type;
      type.element = element_of(a.scalar_type());
      if (a.dim() != b.dim()) throw InputError(file_, fmt::format("{} has another number of dimensions for another batch", name), kExportInstead);
      for (std::int64_t d = 0; d < a.dim(); ++d) type.sizes.push_back(dimension_of_runs(a.size(d), b.size(d)));
      value.type = type;
    } else {
      value.kind = runs[0].isDouble() ? ProgramValue::Kind::Float : runs[0].isBool() ? ProgramValue::Kind::Boolean : ProgramValue::Kind::Integer;
    }
    program().values.push_back(std::move(value));
    return static_cast<int>(program().values.size()) - 1;
  }

  ItemPtr input_item(const std::string& name, const ScriptInput& input) {
    auto item = std::make_shared<Item>();
    for (std::size_t run = 0; run < 2; ++run) {
      std::vector<std::int64_t> sizes{kBatches[run]};
      sizes.insert(sizes.end(), input.shape.begin(), input.shape.end());
      item->runs[run] = input.is_integer ? at::zeros(sizes, at::kLong) : at::rand(sizes, at::kFloat);
    }
    const std::string plain = name.substr(0, name.find('.'));
    item->id = new_value(plain, item->runs);
    program().inputs.push_back({plain, item->id});
    return item;
  }

  ItemPtr object_item(const IValue& object, const std::string& path) {
    auto item = std::make_shared<Item>();
    item->runs = {object, object};
    item->is_object = true;
    item->path = path;
    return item;
  }

  ItemPtr constant_item(const IValue& value) {
    auto item = std::make_shared<Item>();
    item->runs = {value, value};
    if (value.isTensor() && value.toTensor().defined()) item->id = tensor_id(value.toTensor());
    if (value.isTensorList() || value.isTuple()) {
      item->is_list = true;
      const auto elements = value.isTuple() ? value.toTupleRef().elements().vec() : value.toList().vec();
      for (const IValue& element : elements) item->elements.push_back(constant_item(element));
    }
    return item;
  }

  /// The Program's value of a parameter, buffer or constant.
  int tensor_id(const at::Tensor& tensor) {
    const auto known = ids_.find(tensor.unsafeGetTensorImpl());
    if (known != ids_.end()) return known->second;
    const auto key = keys_.find(tensor.unsafeGetTensorImpl());
    const std::string name = key == keys_.end() ? fmt::format("constant_{}", result_.constants.size()) : key->second;
    const int id = new_value(name, {tensor, tensor});
    ids_.emplace(tensor.unsafeGetTensorImpl(), id);
    kept_.push_back(tensor);
    if (key == keys_.end()) {
      StoredTensor stored{name, false, false, element_of(tensor.scalar_type()), tensor.sizes().vec(), {}, 0, name};
      store(stored, tensor);
      result_.constants.push_back(stored);
      program().constants.push_back({name, id, false});
    } else {
      (parameters_[name] ? program().parameters : program().buffers).push_back({name, id, true});
    }
    return id;
  }

  std::vector<ItemPtr> emit_block(const jit::Block& block, const std::vector<ItemPtr>& arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) items_[block.inputs()[i]] = arguments[i];
    for (const jit::Node* node : block.nodes()) emit(*node);
    std::vector<ItemPtr> outputs;
    for (const jit::Value* output : block.outputs()) outputs.push_back(items_.at(output));
    return outputs;
  }

  void give(const jit::Node& node, const std::vector<ItemPtr>& outputs) {
    if (outputs.size() != node.outputs().size()) refuse_node(node, "gave another number of results than expected");
    for (std::size_t i = 0; i < outputs.size(); ++i) items_[node.outputs()[i]] = outputs[i];
  }

  void emit(const jit::Node& node) {
    std::vector<ItemPtr> in;
    for (const jit::Value* input : node.inputs()) in.push_back(items_.at(input));
    const std::string kind = node.kind().toQualString();
    if (kind == "prim::Constant")
      return give(node, {node.output()->type()->kind() == c10::TypeKind::FunctionType ? std::make_shared<Item>()
                                                                                      : constant_item(*jit::toIValue(node.output()))});
    if (kind == "prim::GetAttr") return give(node, {attribute(node, *in.at(0))});
    if (kind == "prim::CallMethod") return give(node, call_method(node, in));
    if (kind == "prim::CallFunction") return give(node, call_function(node, in));
    if (kind == "prim::ListConstruct" || kind == "prim::TupleConstruct") return give(node, {list_item(node, in)});
    if (kind == "prim::ListUnpack" || kind == "prim::TupleUnpack") return give(node, in.at(0)->elements);
    if (kind == "prim::If") return give(node, choose(node, *in.at(0)));
    if (kind == "prim::Loop") return give(node, unroll(node, in));
    if (kind == "prim::RaiseException") refuse_node(node, "the model raises an error for these inputs", "check the shapes given with :input=");
    if (kind == "aten::append" && in.at(0)->is_list) {
      in[0]->elements.push_back(in.at(1));
      return give(node, {in[0]});
    }
    if ((kind == "aten::__getitem__" || kind == "prim::TupleIndex") && in.at(0)->is_list) return give(node, {element(node, in)});
    if (kind == "aten::len" && in.at(0)->is_list) return give(node, {constant_item(static_cast<std::int64_t>(in[0]->elements.size()))});
    if (kind == "prim::NumToTensor" || kind == "aten::Int" || kind == "aten::ScalarImplicit" || kind == "prim::unchecked_cast" ||
        kind == "aten::IntImplicit" || kind == "prim::Uninitialized") {
      if (!in.empty() && is_number(*number_of(in[0]))) return give(node, {number_of(in[0])});
    }
    give(node, call_operator(node, kind, in));
  }

  /// A constant tensor that holds one integer is a number where it meets sizes: traces write "size * 2" so.
  ItemPtr number_of(const ItemPtr& item) {
    const bool is_constant = item->id >= 0 && std::any_of(program().constants.begin(), program().constants.end(),
                                                          [&](const ProgramTensor& t) { return t.value == item->id; });
    if (!is_constant || item->runs[0].toTensor().dim() != 0 || item->runs[0].toTensor().scalar_type() != at::kLong) return item;
    return constant_item(item->runs[0].toTensor().item<std::int64_t>());
  }

  static bool is_number(const Item& item) {
    return !item.is_list && !item.is_object && (item.runs[0].isInt() || item.runs[0].isBool() || item.runs[0].isDouble());
  }

  ItemPtr attribute(const jit::Node& node, const Item& object) {
    const std::string name = node.s(c10::Symbol::attr("name"));
    if (!object.runs[0].isObject()) refuse_node(node, "is asked of something that is no module");
    const IValue value = object.runs[0].toObjectRef().getAttr(name);
    if (value.isObject()) return object_item(value, object.path.empty() ? name : object.path + "." + name);
    return constant_item(value);
  }

  ItemPtr list_item(const jit::Node&, const std::vector<ItemPtr>& in) {
    auto item = std::make_shared<Item>();
    item->is_list = true;
    item->elements = in;
    return item;
  }

  ItemPtr element(const jit::Node& node, const std::vector<ItemPtr>& in) {
    const Item& index = *in.at(1);
    if (index.id >= 0 || !index.runs[0].isInt()) refuse_node(node, "indexes a list by a value that depends on the data");
    const auto size = static_cast<std::int64_t>(in[0]->elements.size());
    const std::int64_t at = index.runs[0].toInt() < 0 ? index.runs[0].toInt() + size : index.runs[0].toInt();
    if (at < 0 || at >= size) refuse_node(node, "indexes a list outside it");
    return in[0]->elements[static_cast<std::size_t>(at)];
  }

  std::vector<ItemPtr> call_method(const jit::Node& node, const std::vector<ItemPtr>& in) {
    const Item& object = *in.at(0);
    const auto type = object.runs[0].type()->expect<c10::ClassType>();
    auto& function = jit::toGraphFunction(type->getMethod(node.s(c10::Symbol::attr("name"))));
    const int call = calls_[object.path]++;
    stack_.push_back({object.path + (call > 0 ? fmt::format("@{}", call) : ""), object.path, class_name(type->name()->qualifiedName())});
    const std::vector<ItemPtr> result = emit_block(*function.graph()->block(), in);
    stack_.pop_back();
    return result;
  }

  std::vector<ItemPtr> call_function(const jit::Node& node, const std::vector<ItemPtr>& in) {
    const auto type = node.inputs().at(0)->type()->expect<c10::FunctionType>();
    return emit_block(*jit::toGraphFunction(*type->function()).graph()->block(), {in.begin() + 1, in.end()});
  }

  /// A condition is decided by what it was in both runs. A branch that only raises an error is not taken.
  std::vector<ItemPtr> choose(const jit::Node& node, const Item& condition) {
    if (!condition.runs[0].isBool() || condition.runs[0].toBool() != condition.runs[1].toBool()) {
      refuse_node(node, "a condition depends on the values or the size of the batch", "trace the model, or export it with torch.export");
    }
    return emit_block(*node.blocks().at(condition.runs[0].toBool() ? 0 : 1), {});
  }

  std::vector<ItemPtr> unroll(const jit::Node& node, const std::vector<ItemPtr>& in) {
    const Item& count = *in.at(0);
    ItemPtr condition = in.at(1);
    if (count.id >= 0 || count.runs[0].toInt() != count.runs[1].toInt()) refuse_node(node, "a loop runs as often as the batch is large");
    std::vector<ItemPtr> carried(in.begin() + 2, in.end());
    for (std::int64_t i = 0; i < count.runs[0].toInt(); ++i) {
      if (!condition->runs[0].toBool() || !condition->runs[1].toBool()) break;
      if (i >= kMostIterations) refuse_node(node, "a loop has too many iterations");
      std::vector<ItemPtr> arguments{constant_item(i)};
      arguments.insert(arguments.end(), carried.begin(), carried.end());
      const std::vector<ItemPtr> results = emit_block(*node.blocks().at(0), arguments);
      condition = results.at(0);
      carried.assign(results.begin() + 1, results.end());
    }
    return carried;
  }

  static IValue shadow(const Item& item, std::size_t run, const c10::TypePtr& type) {
    if (!item.is_list) return item.runs[run];
    if (type->kind() == c10::TypeKind::TupleType || type->kind() == c10::TypeKind::AnyType) {
      std::vector<IValue> elements;
      for (const ItemPtr& element : item.elements) elements.push_back(shadow(*element, run, c10::AnyType::get()));
      return c10::ivalue::Tuple::create(std::move(elements));
    }
    c10::TypePtr of_list = type;
    if (const auto optional = of_list->cast<c10::OptionalType>()) of_list = optional->getElementType();
    const auto element_type = of_list->expect<c10::ListType>()->getElementType();
    c10::impl::GenericList list(element_type);
    for (const ItemPtr& element : item.elements) list.push_back(shadow(*element, run, element_type));
    return list;
  }

  /// Runs an operator in both runs; what is a tensor, or a number that follows the batch, becomes a step.
  std::vector<ItemPtr> call_operator(const jit::Node& node, const std::string& kind, std::vector<ItemPtr> in) {
    if (std::any_of(in.begin(), in.end(), [](const ItemPtr& item) { return is_number(*item); })) {
      for (ItemPtr& item : in) item = number_of(item);
    }
    static const std::set<std::string> kOutOfValues{"aten::Bool",           "aten::Int",         "aten::Float",
                                                    "aten::item",           "aten::IntImplicit", "aten::FloatImplicit",
                                                    "aten::ScalarImplicit", "aten::is_nonzero",  "aten::equal"};
    if (kOutOfValues.contains(kind) && in.at(0)->id >= 0 && number_of(in[0]) == in[0] && !is_number(*in[0])) {
      refuse_node(node, "makes a number or a decision that depends on the values of a tensor",
                  "keep it a tensor (torch.where), or move it out of the model");
    }
    std::array<std::vector<IValue>, 2> stacks;
    for (std::size_t run = 0; run < 2; ++run) {
      for (std::size_t i = 0; i < in.size(); ++i) stacks[run].push_back(shadow(*in[i], run, node.inputs()[i]->type()));
      if (node.schema().is_vararg()) stacks[run].emplace_back(static_cast<std::int64_t>(in.size()));
      // A size that went through a tensor in the trace is a number here.
      for (std::size_t i = 0; i < in.size(); ++i) {
        if (node.inputs()[i]->type()->kind() == c10::TypeKind::TensorType && is_number(*in[i]))
          stacks[run][i] = at::scalar_tensor(in[i]->runs[run].toScalar(), at::kLong);
      }
      try {
        node.getOperation()(stacks[run]);
      } catch (const std::exception& error) {
        const std::string text = error.what();
        refuse_node(
            node,
            fmt::format("fails with a batch of {}: {}", kBatches[run], text.substr(0, std::min(text.find('\n'), text.find("Exception raised from")))),
            "check the shapes given with :input=; a trace with a baked batch must be made again with sizes taken from tensors");
      }
    }
    const bool of_numbers = std::all_of(in.begin(), in.end(), [](const ItemPtr& item) {
      return is_number(*item) || (!item->is_list && (item->runs[0].isNone() || item->runs[0].isString()));
    });
    if (kind == "aten::size" && in.size() == 1) return {size_list(*in[0])};
    std::vector<ItemPtr> outputs;
    bool needs_step = false;
    for (std::size_t i = 0; i < stacks[0].size(); ++i) {
      outputs.push_back(std::make_shared<Item>());
      outputs.back()->runs = {stacks[0][i], stacks[1][i]};
      if (of_numbers && stacks[0][i].isTensor())
        outputs.back()->runs = {stacks[0][i].toTensor().item<std::int64_t>(), stacks[1][i].toTensor().item<std::int64_t>()};
      needs_step = needs_step || (outputs.back()->runs[0].isTensor() && stacks[0][i].toTensor().defined()) || stacks[0][i].isTensorList();
    }
    if (needs_step) return write_step(node, kind, in, outputs);
    for (const ItemPtr& output : outputs) finish_number(node, kind, in, *output);
    return outputs;
  }

  /// A number is a constant if it was the same in both runs, else arithmetic on sizes.
  void finish_number(const jit::Node& node, const std::string& kind, const std::vector<ItemPtr>& in, Item& output) {
    if (output.runs[0].isNone() || output.runs[0] == output.runs[1]) {
      if (output.runs[0].isIntList() || output.runs[0].isTuple() || output.runs[0].isList()) output = *constant_list(output.runs[0]);
      return;
    }
    static const std::map<std::string, std::string> kArithmetic{{"aten::add", "_operator.add"},
                                                                {"aten::sub", "_operator.sub"},
                                                                {"aten::mul", "_operator.mul"},
                                                                {"aten::floordiv", "_operator.floordiv"},
                                                                {"aten::floor_divide", "_operator.floordiv"},
                                                                {"aten::size", "aten.sym_size.int"},
                                                                {"aten::remainder", "_operator.mod"},
                                                                {"aten::neg", "_operator.neg"}};
    const auto target = kArithmetic.find(kind);
    if (target == kArithmetic.end()) refuse_node(node, "computes a number out of values");
    ProgramStep step = step_of(node, target->second);
    const std::size_t used = kind == "aten::neg" ? 1 : 2;
    for (std::size_t i = 0; i < used && i < in.size(); ++i)
      step.arguments.push_back({kind == "aten::size" ? (i == 0 ? "self" : "dim") : "", argument_of(*in[i])});
    output.id = new_value("size", output.runs);
    step.outputs = {{{output.id}, false}};
    add_step(std::move(step));
  }

  ItemPtr constant_list(const IValue& value) {
    auto item = std::make_shared<Item>();
    item->is_list = true;
    const auto elements = value.isTuple() ? value.toTupleRef().elements().vec() : value.toList().vec();
    for (const IValue& element : elements) item->elements.push_back(constant_item(element));
    return item;
  }

  ItemPtr size_list(const Item& tensor) {
    auto item = std::make_shared<Item>();
    item->is_list = true;
    for (std::int64_t d = 0; d < tensor.runs[0].toTensor().dim(); ++d) {
      const std::int64_t a = tensor.runs[0].toTensor().size(d), b = tensor.runs[1].toTensor().size(d);
      auto size = constant_item(a);
      if (a != b) {
        size->runs = {a, b};
        size->id = new_value("size", size->runs);
        ProgramStep step;
        step.target = "aten.sym_size.int";
        step.modules = stack_;
        step.arguments = {{"self", argument_of(tensor)}, {"dim", Argument::of_integer(d)}};
        step.outputs = {{{size->id}, false}};
        add_step(std::move(step));
      }
      item->elements.push_back(size);
    }
    return item;
  }

  std::vector<ItemPtr> write_step(const jit::Node& node, const std::string& kind, const std::vector<ItemPtr>& in,
                                  const std::vector<ItemPtr>& outputs) {
    const std::string overload = node.schema().overload_name();
    ProgramStep step = step_of(node, "aten." + kind.substr(kind.find("::") + 2) + "." + (overload.empty() ? "default" : overload));
    for (std::size_t i = 0; i < in.size(); ++i) step.arguments.push_back({node.schema().arguments().at(i).name(), argument_of(*in[i])});
    const std::string name = kind.substr(kind.find("::") + 2);
    for (const ItemPtr& output : outputs) {
      StepOutput written;
      if (output->runs[0].isTensorList()) {
        written.is_list = output->is_list = true;
        const auto a = output->runs[0].toTensorVector(), b = output->runs[1].toTensorVector();
        if (a.size() != b.size()) refuse_node(node, "gives as many tensors as the batch is large");
        for (std::size_t i = 0; i < a.size(); ++i) {
          auto element = std::make_shared<Item>();
          element->runs = {a[i], b[i]};
          element->id = new_value(name, element->runs);
          written.values.push_back(element->id);
          output->elements.push_back(element);
        }
      } else {
        output->id = new_value(name, output->runs);
        written.values.push_back(output->id);
      }
      step.outputs.push_back(std::move(written));
    }
    add_step(std::move(step));
    return outputs;
  }

  ProgramStep step_of(const jit::Node& node, std::string target) const {
    ProgramStep step;
    step.target = std::move(target);
    step.modules = stack_;
    if (const auto place = node.sourceRange().file_line_col()) {
      const auto& [name, line, column] = *place;
      step.source = fmt::format("{}:{}", name.substr(name.rfind('/') + 1), line);
    }
    return step;
  }

  void add_step(ProgramStep step) {
    step.name = fmt::format("step_{}", program().steps.size());
    program().steps.push_back(std::move(step));
  }

  Argument argument_of(const Item& item) {
    if (item.id >= 0) return Argument::of_value(item.id);
    if (item.is_list) {
      std::vector<Argument> elements;
      for (const ItemPtr& element : item.elements) elements.push_back(argument_of(*element));
      return Argument::list(std::move(elements));
    }
    const IValue& value = item.runs[0];
    if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return Argument::none();
    if (value.isInt()) return Argument::of_integer(value.toInt());
    if (value.isDouble()) return Argument::of_float(value.toDouble());
    if (value.isBool()) return Argument::of_boolean(value.toBool());
    if (value.isString()) return Argument::of_text(value.toStringRef());
    if (value.isList()) return argument_of(*constant_list(value));
    Argument result = Argument::of_text(value.tagKind());
    result.kind = value.isDevice() ? Argument::Kind::Device : Argument::Kind::Unsupported;
    return result;
  }

  void finish(const std::vector<ItemPtr>& outputs) {
    std::vector<ItemPtr> flat;
    for (const ItemPtr& output : outputs) {
      if (output->is_list) flat.insert(flat.end(), output->elements.begin(), output->elements.end());
      else flat.push_back(output);
    }
    for (const ItemPtr& output : flat) {
      program().outputs.push_back({output->id, false});
      if (output->id < 0 || !output->runs[0].isTensor()) continue;
      const TensorType& type = *program().values[static_cast<std::size_t>(output->id)].type;
      if (type.sizes.empty() || type.sizes[0].is_symbolic()) continue;
      throw InputError(file_,
                       fmt::format("the output is {} whatever the batch is: its size was turned into a constant by the trace", print_type(type)),
                       "trace with sizes taken from tensors (x.shape[0] without int()), or export with torch.export");
    }
    program().producer = "TorchScript";
    result_.has_values = true;
    validate(program(), file_);
  }

  Program& program() { return result_.program; }

  const std::string& file_;
  const jit::Module& module_;
  Pt2File result_;
  std::map<const jit::Value*, ItemPtr> items_;
  std::map<const void*, std::string> keys_;
  std::map<const void*, int> ids_;
  std::map<std::string, bool> parameters_;
  std::map<std::string, int> calls_;
  std::vector<at::Tensor> kept_;
  std::vector<ModuleEntry> stack_;
};

}  // namespace

std::vector<ScriptInput> parse_script_inputs(const std::string& text) {
  std::vector<ScriptInput> inputs;
  const auto fail = [&]() {
    throw UsageError(fmt::format("'{}' describes no inputs", text), "write the sizes of a sample: 3x224x224, i128 for integers, joined by +");
  };
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('+', at), text.size());
    std::string part = text.substr(at, end - at);
    ScriptInput input;
    if (part.starts_with('i')) input.is_integer = true, part.erase(0, 1);
    if (part.empty()) fail();
    for (std::size_t from = 0; part != "scalar" && from <= part.size();) {
      const std::size_t to = std::min(part.find('x', from), part.size());
      std::int64_t size = 0;
      const auto [stop, error] = std::from_chars(part.data() + from, part.data() + to, size);
      if (error != std::errc() || stop != part.data() + to || size < 1 || size > (1 << 24)) fail();
      input.shape.push_back(size);
      from = to + 1;
    }
    inputs.push_back(std::move(input));
    at = end + 1;
  }
  return inputs;
}

bool is_torchscript(const std::shared_ptr<const MappedFile>& file) {
  if (!looks_like_zip(file->bytes())) return false;
  const ZipArchive archive(file);
  return std::any_of(archive.entries().begin(), archive.entries().end(),
                     [](const ZipEntry& entry) { return entry.name.ends_with("/constants.pkl"); });
}

Pt2File read_torchscript(const std::string& file, const std::vector<ScriptInput>& inputs) {
  {
    const ZipArchive archive(MappedFile::open(file));  // libtorch's reader does not notice flipped bytes
    for (const ZipEntry& entry : archive.entries()) (void)archive.read(entry);
  }
  if (inputs.empty()) {
    throw UsageError(file + ": TorchScript files do not say the shape of their inputs",
                     "add it: --model " + file + ":input=3x224x224 (a sample; i128 for integers; + between inputs)");
  }
  try {
    const jit::Module module = jit::load(file, c10::Device(c10::kCPU));
    return Follower(file, module).run(inputs);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw InputError(file,
                     "libtorch cannot read this TorchScript file: " + text.substr(0, std::min<std::size_t>(text.find("Exception raised from"), 300)),
                     kExportInstead);
  }
}

}  // namespace pipedream
