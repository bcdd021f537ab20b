#include "pipedream/model/import/layering.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <ostream>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

/// torch.nn modules that only hold others: the path is followed into them.
bool is_container(const std::string& type) {
  static const std::set<std::string, std::less<>> names{"Sequential",
                                                        "ModuleList",
                                                        "ModuleDict",
                                                        "ParameterList",
                                                        "Transformer",
                                                        "TransformerEncoder",
                                                        "TransformerEncoderLayer",
                                                        "TransformerDecoder",
                                                        "TransformerDecoderLayer"};
  return names.contains(type.substr(type.rfind('.') + 1));
}

/// The module call that a step belongs to at a granularity.
struct Owner {
  std::string key;  ///< equal for the steps of one call
  std::string path, type;
  bool is_module = false;  ///< the module as a whole, not what a container does besides its modules
};

std::string call_suffix(const std::string& key) {
  const std::size_t at = key.rfind('@');
  const bool is_call = at != std::string::npos && at + 1 < key.size() && key.find_first_not_of("0123456789", at + 1) == std::string::npos;
  return is_call ? key.substr(at) : "";
}

Owner owner_of(const ProgramStep& step, const Granularity& granularity) {
  std::size_t at = 0;
  bool is_leaf = false;
  for (; at < step.modules.size(); ++at) {
    is_leaf = step.modules[at].type.starts_with("torch.nn.") && !is_container(step.modules[at].type);
    const bool deep_enough = granularity.kind == Granularity::Kind::Block && static_cast<int>(at) == granularity.depth;
    if (is_leaf || deep_enough || at + 1 == step.modules.size()) {
      is_leaf = is_leaf || deep_enough;
      break;
    }
  }
  const ModuleEntry& entry = step.modules.at(at);
  return {entry.key, entry.path + call_suffix(entry.key), entry.type, is_leaf};
}

/// A layer while steps are being dealt out.
struct Draft {
  std::vector<int> steps;
  Owner owner;
};

class Layering {
 public:
  Layering(FunctionalProgram functional, const Granularity& granularity)
      : program_(std::move(functional.program)), groups_(std::move(functional.groups)), granularity_(granularity) {
    for (const ProgramOutput& output : program_.outputs) {
      if (output.value >= 0) outputs_.insert(output.value);
    }
    roots_ = memory_roots(program_);
    for (const ProgramTensor& t : program_.parameters) parameters_.emplace(t.value, t.name);
    for (const ProgramTensor& t : program_.buffers) buffers_.emplace(t.value, t.name);
    for (const ProgramTensor& t : program_.constants) constants_.emplace(t.value, t.name);
    for (const ProgramInput& input : program_.inputs) inputs_.insert(input.value);
    maker_.assign(program_.values.size(), -1);
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      for (const int id : program_.steps[i].writes()) maker_[static_cast<std::size_t>(id)] = static_cast<int>(i);
    }
  }

  LayeredProgram run() {
    find_copied_steps();
    deal_steps();
    join_groups();
    join_shared_buffers();
    LayeredProgram result;
    for (const Draft& draft : drafts_) result.layers.push_back(layer_of(draft));
    find_outputs(result.layers);
    drop_layers_without_outputs(result.layers);
    name_layers(result.layers);
    result.program = std::move(program_);
    result.notes = std::move(notes_);
    return result;
  }

 private:
  [[nodiscard]] int maker(int value) const { return maker_[static_cast<std::size_t>(value)]; }
  [[nodiscard]] const ProgramStep& step(int index) const { return program_.steps[static_cast<std::size_t>(index)]; }

  /// Sizes, arithmetic on them, and what is computed from constants and unchanged buffers alone: these are no layers, every layer has its own copy.
  void find_copied_steps() {
    copied_.assign(program_.steps.size(), false);
    std::set<int> grouped, changed;
    for (const StepGroup& group : groups_) grouped.insert(group.begin(), group.end());
    for (const ProgramStep& s : program_.steps) {
      for (const int id : changed_buffers(program_, roots_, s)) changed.insert(id);
    }
    const auto is_constant = [&](int id) {
      if (maker(id) >= 0) return static_cast<bool>(copied_[static_cast<std::size_t>(maker(id))]);
      return constants_.contains(id) || (buffers_.contains(id) && !changed.contains(id));
    };
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const ProgramStep& s = program_.steps[i];
      if (is_scalar(program_, s)) {
        copied_[i] = true;
        continue;
      }
      const std::vector<int> reads = s.reads();
      copied_[i] = !is_random(s) && !is_in_place(s) && !grouped.contains(static_cast<int>(i)) && std::all_of(reads.begin(), reads.end(), is_constant);
    }
    // What the model returns must be made by some layer.
    for (const int id : outputs_) {
      if (maker(id) >= 0) copied_[static_cast<std::size_t>(maker(id))] = false;
    }
  }

  /// Index in drafts_ of the layers whose results a step needs, through copied steps too (a copy needs its own tensors only for their sizes).
  void producers(int index, std::set<int>& found) const {
    for (const int id : step(index).reads()) {
      const int by = maker(id);
      if (by >= 0 && draft_of_[static_cast<std::size_t>(by)] >= 0) found.insert(draft_of_[static_cast<std::size_t>(by)]);
    }
  }

  Owner owner(int index) const {
    const ProgramStep& s = step(index);
    if (granularity_.kind == Granularity::Kind::Node) {
      Owner result = s.modules.empty() ? Owner{} : owner_of(s, {});
      // A count of batches has no reader: it goes with the statistics of its module.
      const bool changes_buffer = !changed_buffers(program_, roots_, s).empty();
      result.key = changes_buffer ? "statistics " + result.key : "step " + std::to_string(index);
      return result;
    }
    if (!s.modules.empty()) return owner_of(s, granularity_);
    for (const int id : s.reads()) {  // no module paths: the owner of the first parameter
      const auto parameter = parameters_.find(id);
      if (parameter == parameters_.end()) continue;
      const std::string path = parameter->second.substr(0, parameter->second.rfind('.'));
      return {"parameter of " + path, path, "", true};
    }
    return {};
  }

  void deal_steps() {
    draft_of_.assign(program_.steps.size(), -1);
    std::map<std::string, int> latest;  // key -> last draft of that key
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      if (copied_[i]) continue;
      const int index = static_cast<int>(i);
      Owner by = owner(index);
      std::set<int> from;
      producers(index, from);
      int target = -1;
      if (by.key.empty() && from.size() == 1) target = *from.begin();
      const auto known = latest.find(by.key);
      if (!by.key.empty() && known != latest.end()) {
        const bool is_last = known->second + 1 == static_cast<int>(drafts_.size());
        if (is_last || from.empty() || *from.rbegin() <= known->second) target = known->second;
      }
      if (target < 0) {
        target = static_cast<int>(drafts_.size());
        drafts_.push_back({{}, by});
      }
      if (!by.key.empty()) latest[by.key] = target;
      drafts_[static_cast<std::size_t>(target)].steps.push_back(index);
      draft_of_[i] = target;
    }
  }

  /// Joins the drafts first..last. Their list is in topological order, so joining neighbours makes no cycle.
  void join(int first, int last) {
    if (first >= last) return;
    Draft& whole = drafts_[static_cast<std::size_t>(first)];
    for (int i = first + 1; i <= last; ++i) {
      const Draft& part = drafts_[static_cast<std::size_t>(i)];
      whole.steps.insert(whole.steps.end(), part.steps.begin(), part.steps.end());
    }
    std::sort(whole.steps.begin(), whole.steps.end());
    drafts_.erase(drafts_.begin() + first + 1, drafts_.begin() + last + 1);
    for (std::size_t d = 0; d < drafts_.size(); ++d) {
      for (const int index : drafts_[d].steps) draft_of_[static_cast<std::size_t>(index)] = static_cast<int>(d);
    }
  }

  [[nodiscard]] std::string label(int draft) const {
    const Draft& d = drafts_[static_cast<std::size_t>(draft)];
    return d.owner.is_module ? d.owner.path : d.owner.path + "+" + main_operator(d);
  }

  void join_steps(const std::vector<int>& indices, const std::string& reason) {
    int first = static_cast<int>(drafts_.size()), last = -1;
    for (const int index : indices) {
      const int draft = draft_of_[static_cast<std::size_t>(index)];
      if (draft < 0) continue;
      first = std::min(first, draft);
      last = std::max(last, draft);
    }
    if (last <= first) return;
    notes_.push_back(fmt::format("the layers from {} to {} form one, because {}", label(first), label(last), reason));
    join(first, last);
  }

  void join_groups() {
    for (const StepGroup& group : groups_) join_steps(group, "one changes in place what the other reads");
  }

  void join_shared_buffers() {
    std::map<int, std::vector<int>> users;
    std::set<int> changed;
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      for (const int id : changed_buffers(program_, roots_, program_.steps[i])) changed.insert(id);
      for (const int id : program_.steps[i].reads()) users[roots_[static_cast<std::size_t>(id)]].push_back(static_cast<int>(i));
    }
    for (const int id : changed) join_steps(users[id], fmt::format("they share the statistics {}", buffers_.at(id)));
  }

  /// All steps of a layer: its own and the copies that they need. A size whose tensor is elsewhere is taken from a tensor at hand.
  ProgramLayer layer_of(const Draft& draft) {
    ProgramLayer layer;
    layer.type = draft.owner.type;
    std::set<int> steps(draft.steps.begin(), draft.steps.end());
    std::set<int> made, inputs;
    for (const int index : draft.steps) {
      for (const int id : step(index).writes()) made.insert(id);
    }
    const auto is_foreign = [&](int id) {  // made by another layer, or an input of the model
      return inputs_.contains(id) || (maker(id) >= 0 && !copied_[static_cast<std::size_t>(maker(id))] && !made.contains(id));
    };
    for (const int index : draft.steps) {
      for (const int id : step(index).reads()) {
        if (is_foreign(id)) inputs.insert(id);
      }
    }
    const std::set<int> at_hand = inputs;
    std::vector<std::pair<int, int>> pending;  // (copied step, the own step that needs it)
    const auto need = [&](int reader, int user) {
      for (const int id : step(reader).reads()) {
        if (maker(id) >= 0 && copied_[static_cast<std::size_t>(maker(id))]) pending.emplace_back(maker(id), user);
      }
    };
    for (const int index : draft.steps) need(index, index);
    while (!pending.empty()) {
      const auto [index, user] = pending.back();
      pending.pop_back();
      if (!steps.insert(index).second) continue;
      need(index, user);
      for (const int id : step(index).reads()) {
        if (!is_foreign(id) || inputs.contains(id)) continue;
        if (const auto source = size_source(index, at_hand)) layer.sizes.push_back(*source);
        else inputs.insert(id);
      }
    }
    layer.steps.assign(steps.begin(), steps.end());
    std::sort(layer.sizes.begin(), layer.sizes.end(), [](const SizeSource& a, const SizeSource& b) { return a.step < b.step; });
    list_values(layer, inputs);
    return layer;
  }

  /// Another tensor among the layer's inputs that has a dimension of the same symbolic size.
  [[nodiscard]] std::optional<SizeSource> size_source(int index, const std::set<int>& at_hand) const {
    const ProgramStep& size = step(index);
    if (operator_name(size) != "sym_size" || size.first_value() < 0) return std::nullopt;
    const auto& type = program_.values[static_cast<std::size_t>(size.first_value())].type;
    const Argument* dimension = size.find("dim");
    if (dimension == nullptr && size.arguments.size() > 1) dimension = &size.arguments[1].value;
    if (!type || dimension == nullptr || dimension->kind != Argument::Kind::Integer) return std::nullopt;
    const auto rank = static_cast<std::int64_t>(type->sizes.size());
    const std::int64_t at = dimension->integer < 0 ? dimension->integer + rank : dimension->integer;
    if (at < 0 || at >= rank || !type->sizes[static_cast<std::size_t>(at)].is_symbolic()) return std::nullopt;
    const std::string& wanted = type->sizes[static_cast<std::size_t>(at)].expression;
    for (const int id : at_hand) {
      const auto& other = program_.values[static_cast<std::size_t>(id)].type;
      if (!other) continue;
      for (std::size_t d = 0; d < other->sizes.size(); ++d) {
        if (other->sizes[d].expression == wanted) return SizeSource{index, id, static_cast<int>(d)};
      }
    }
    return std::nullopt;
  }

  void list_values(ProgramLayer& layer, const std::set<int>& inputs) {
    std::set<int> seen;
    for (const int index : layer.steps) {
      for (const int id : step(index).reads()) {
        if (!seen.insert(id).second) continue;
        if (parameters_.contains(id)) layer.parameters.push_back(id);
        else if (buffers_.contains(id)) layer.buffers.push_back(id);
        else if (constants_.contains(id)) layer.constants.push_back(id);
        else if (inputs.contains(id)) layer.inputs.push_back(id);
      }
      for (const int id : changed_buffers(program_, roots_, step(index))) {
        if (std::find(layer.changed_buffers.begin(), layer.changed_buffers.end(), id) == layer.changed_buffers.end())
          layer.changed_buffers.push_back(id);
      }
    }
    // A size taken from elsewhere leaves its tensor unread.
    const auto unread = [&](int id) {
      return std::none_of(layer.steps.begin(), layer.steps.end(), [&](int index) {
        const bool is_replaced = std::any_of(layer.sizes.begin(), layer.sizes.end(), [&](const SizeSource& s) { return s.step == index; });
        const std::vector<int> reads = step(index).reads();
        return !is_replaced && std::find(reads.begin(), reads.end(), id) != reads.end();
      });
    };
    std::erase_if(layer.inputs, unread);
  }

  void find_outputs(std::vector<ProgramLayer>& layers) const {
    std::set<int> wanted = outputs_;
    for (const ProgramLayer& layer : layers) wanted.insert(layer.inputs.begin(), layer.inputs.end());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      for (const int index : drafts_[i].steps) {
        for (const int id : step(index).writes()) {
          if (wanted.contains(id)) layers[i].outputs.push_back(id);
        }
      }
    }
  }

  /// Statistics of a module whose result nobody needs are not worth a layer.
  void drop_layers_without_outputs(std::vector<ProgramLayer>& layers) {
    for (std::size_t i = layers.size(); i-- > 0;) {
      if (!layers[i].outputs.empty()) continue;
      layers.erase(layers.begin() + static_cast<std::ptrdiff_t>(i));
      drafts_.erase(drafts_.begin() + static_cast<std::ptrdiff_t>(i));
      for (ProgramLayer& layer : layers) layer.outputs.clear();
      find_outputs(layers);
      i = layers.size();
    }
  }

  /// The operator that says most about what a container does itself: the last one that is more than a change of shape.
  [[nodiscard]] std::string main_operator(const Draft& draft) const {
    for (auto at = draft.steps.rbegin(); at != draft.steps.rend(); ++at) {
      if (!is_view(step(*at)) || is_random(step(*at))) return operator_name(step(*at));
    }
    return operator_name(step(draft.steps.back()));
  }

  void name_layers(std::vector<ProgramLayer>& layers) const {
    std::map<std::string, int> calls;  // of a path, in how many layers its steps lie
    for (const Draft& draft : drafts_) ++calls[draft.owner.path];
    std::set<std::string> used;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Owner& by = drafts_[i].owner;
      const std::string inside = by.path + ".";
      const bool has_modules = std::any_of(drafts_.begin(), drafts_.end(), [&](const Draft& d) { return d.owner.path.starts_with(inside); });
      const bool whole = !by.path.empty() && ((by.is_module && calls[by.path] == 1) || (!has_modules && calls[by.path] == 1));
      std::string name = whole ? by.path : by.path + "+" + main_operator(drafts_[i]);
      if (layers.size() == 1 && by.path.empty()) name = "model";
      std::string candidate = name;
      for (int n = 2; !used.insert(candidate).second; ++n) candidate = fmt::format("{}.{}", name, n);
      layers[i].name = candidate;
    }
  }

  Program program_;
  std::vector<StepGroup> groups_;
  std::set<int> outputs_;
  Granularity granularity_;
  std::vector<int> roots_, maker_, draft_of_;
  std::map<int, std::string> parameters_, buffers_, constants_;
  std::set<int> inputs_;
  std::vector<bool> copied_;
  std::vector<Draft> drafts_;
  std::vector<std::string> notes_;
};

}  // namespace

Granularity parse_granularity(const std::string& text) {
  if (text == "leaf") return {Granularity::Kind::Leaf, 1};
  if (text == "node") return {Granularity::Kind::Node, 1};
  if (text == "block") return {Granularity::Kind::Block, 1};
  if (text.starts_with("block:")) {
    int depth = 0;
    const auto [end, error] = std::from_chars(text.data() + 6, text.data() + text.size(), depth);
    if (error == std::errc() && end == text.data() + text.size() && depth >= 0 && depth <= 1000) return {Granularity::Kind::Block, depth};
  }
  throw UsageError(fmt::format("unknown granularity \"{}\"", text), "leaf, block, block:DEPTH or node");
}

int LayeredProgram::maker_of(int value) const {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (std::find(layers[i].outputs.begin(), layers[i].outputs.end(), value) != layers[i].outputs.end()) return static_cast<int>(i);
  }
  return -1;
}

LayeredProgram cut_into_layers(const Program& program, const Granularity& granularity) {
  FunctionalProgram functional = replace_in_place(program);
  remove_unused(functional);
  return Layering(std::move(functional), granularity).run();
}

std::ostream& operator<<(std::ostream& out, const LayeredProgram& layered) {
  const auto names = [&](const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids) text += (text.empty() ? "" : ", ") + layered.program.values.at(static_cast<std::size_t>(id)).name;
    return text;
  };
  for (const ProgramLayer& layer : layered.layers) {
    out << layer.name << "(" << names(layer.inputs) << ") -> " << names(layer.outputs) << "\n";
    for (const int index : layer.steps) {
      const ProgramStep& step = layered.program.steps.at(static_cast<std::size_t>(index));
      const auto source = std::find_if(layer.sizes.begin(), layer.sizes.end(), [&](const SizeSource& s) { return s.step == index; });
      out << "  " << names(step.writes()) << " = ";
      if (source == layer.sizes.end()) out << print_step(layered.program, step) << "\n";
      else out << "size(" << names({source->value}) << ", " << source->dimension << ")\n";
    }
  }
  return out;
}

}  // namespace pipedream
