#include "pipedream/model/import/aliases.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

namespace pipedream {
namespace {

const std::unordered_set<std::string_view>& view_operators() {
  static const std::unordered_set<std::string_view> names{"view",
                                                          "reshape",
                                                          "view_as",
                                                          "reshape_as",
                                                          "transpose",
                                                          "permute",
                                                          "t",
                                                          "select",
                                                          "slice",
                                                          "narrow",
                                                          "squeeze",
                                                          "unsqueeze",
                                                          "expand",
                                                          "split",
                                                          "expand_as",
                                                          "unbind",
                                                          "split_with_sizes",
                                                          "chunk",
                                                          "tensor_split",
                                                          "flatten",
                                                          "unflatten",
                                                          "as_strided",
                                                          "diagonal",
                                                          "movedim",
                                                          "detach",
                                                          "contiguous",
                                                          "to",
                                                          "type_as",
                                                          "alias",
                                                          "unfold",
                                                          "real",
                                                          "view_as_real",
                                                          "swapaxes",
                                                          "swapdims",
                                                          "moveaxis",
                                                          "ravel",
                                                          "numpy_T",
                                                          "mT",
                                                          "adjoint",
                                                          "T",
                                                          "broadcast_to",
                                                          "dropout",
                                                          "feature_dropout",
                                                          "identity",
                                                          "alpha_dropout",
                                                          "feature_alpha_dropout",
                                                          "positive",
                                                          "hsplit",
                                                          "vsplit",
                                                          "dsplit",
                                                          "broadcast_tensors",
                                                          "lift_fresh",
                                                          "float",
                                                          "rrelu"};
  return names;
}

const std::unordered_set<std::string_view>& random_operators() {
  static const std::unordered_set<std::string_view> names{
      "dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout", "bernoulli",   "rand",   "randn",
      "randint", "rand_like",       "randn_like",    "randint_like",          "randperm",       "multinomial", "normal", "normal_functional",
      "uniform", "exponential",     "rrelu",         "rrelu_with_noise",      "poisson",        "geometric",   "cauchy", "log_normal",
      "random"};
  return names;
}

/// "relu_" -> "relu".
std::string without_underscore(const std::string& name) { return name.ends_with('_') ? name.substr(0, name.size() - 1) : name; }

/// The same name without the underscore, but for a few.
std::string twin_of(const std::string& target, const std::string& name) {
  if (target == "aten.bernoulli_.float") return "aten.bernoulli.p";
  if (target == "aten.normal_.default") return "aten.normal_functional.default";
  const std::size_t at = target.find("." + name + ".");
  return target.substr(0, at + 1) + without_underscore(name) + target.substr(at + 1 + name.size());
}

void replace_reads(Argument& argument, int from, int to) {
  if (argument.is_value() && argument.integer == from) argument.integer = to;
  for (Argument& element : argument.elements) replace_reads(element, from, to);
}

void replace_reads(ProgramStep& step, int from, int to) {
  for (NamedArgument& argument : step.arguments) replace_reads(argument.value, from, to);
}

std::set<int> values_of(const std::vector<ProgramTensor>& tensors) {
  std::set<int> result;
  for (const ProgramTensor& tensor : tensors) result.insert(tensor.value);
  return result;
}

/// Decides for each in-place step of a program what becomes of it.
class InPlace {
 public:
  explicit InPlace(Program program) : program_(std::move(program)), roots_(memory_roots(program_)) {
    state_ = values_of(program_.buffers);
    for (const int id : values_of(program_.parameters)) state_.insert(id);
    for (const ProgramInput& input : program_.inputs) inputs_.insert(input.value);
  }

  FunctionalProgram run() {
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const ProgramStep& step = program_.steps[i];
      if (!is_in_place(step) || step.first_value() < 0 || state_.contains(root_of(step.first_value()))) continue;
      if (shares_memory_later(i)) entangled_.insert(root_of(step.first_value()));
      else make_functional(i);
    }
    for (const int root : entangled_) keep_together(root);
    return {std::move(program_), std::move(groups_)};
  }

 private:
  [[nodiscard]] int root_of(int value) const { return roots_[static_cast<std::size_t>(value)]; }

  /// True if anything but the changed value itself, or what comes from the result, sees the change.
  [[nodiscard]] bool shares_memory_later(std::size_t at) const {
    const ProgramStep& step = program_.steps[at];
    const int changed = step.first_value(), root = root_of(changed);
    if (entangled_.contains(root)) return true;
    std::set<int> descendants{changed};
    for (const int id : step.writes()) descendants.insert(id);
    const auto sees = [&](int id) { return root_of(id) == root && !descendants.contains(id); };
    for (std::size_t i = at + 1; i < program_.steps.size(); ++i) {
      const std::vector<int> reads = program_.steps[i].reads();
      if (std::any_of(reads.begin(), reads.end(), sees)) return true;
      for (const int id : program_.steps[i].writes()) descendants.insert(id);
    }
    return std::any_of(program_.outputs.begin(), program_.outputs.end(), [&](const ProgramOutput& o) { return o.value >= 0 && sees(o.value); });
  }

  void make_functional(std::size_t at) {
    ProgramStep& step = program_.steps[at];
    const int changed = step.first_value(), result = step.writes().empty() ? -1 : step.writes().front();
    step.target = twin_of(step.target, operator_name(step));
    if (result < 0) return;
    for (std::size_t i = at + 1; i < program_.steps.size(); ++i) replace_reads(program_.steps[i], changed, result);
    for (ProgramOutput& output : program_.outputs) {
      if (output.value == changed) output.value = result;
    }
    // What was a piece of the changed memory is memory of its own now.
    const int root = root_of(changed);
    for (std::size_t id = 0; id < roots_.size(); ++id) {
      if (roots_[id] == root && made_after(static_cast<int>(id), at)) roots_[id] = result;
    }
  }

  [[nodiscard]] bool made_after(int value, std::size_t at) const {
    for (std::size_t i = at; i < program_.steps.size(); ++i) {
      const std::vector<int> writes = program_.steps[i].writes();
      if (std::find(writes.begin(), writes.end(), value) != writes.end()) return true;
    }
    return false;
  }

  void keep_together(int root) {
    if (inputs_.contains(root)) root = copy_input(root);
    int last = -1;
    for (std::size_t i = 0; i < program_.steps.size(); ++i) {
      const ProgramStep& step = program_.steps[i];
      if (is_in_place(step) && step.first_value() >= 0 && root_of(step.first_value()) == root) last = static_cast<int>(i);
    }
    StepGroup group;
    for (int i = 0; i <= last; ++i) {
      const ProgramStep& step = program_.steps[static_cast<std::size_t>(i)];
      std::vector<int> values = step.reads();
      for (const int id : step.writes()) values.push_back(id);
      if (std::any_of(values.begin(), values.end(), [&](int id) { return root_of(id) == root; })) group.push_back(i);
    }
    groups_.push_back(std::move(group));
  }

  /// Inserts copy = clone(input) before everything and lets all steps read the copy.
  int copy_input(int input) {
    ProgramValue copy = program_.values[static_cast<std::size_t>(input)];
    copy.name += "_copy";
    const int id = static_cast<int>(program_.values.size());
    for (ProgramStep& step : program_.steps) replace_reads(step, input, id);
    for (std::size_t value = 0; value < roots_.size(); ++value) {
      if (roots_[value] == input && static_cast<int>(value) != input) roots_[value] = id;
    }
    ProgramStep step;
    step.name = copy.name;
    step.target = "aten.clone.default";
    step.arguments = {{"self", Argument::of_value(input)}};
    step.outputs = {{{id}, false}};
    if (!program_.steps.empty() && !program_.steps.front().modules.empty()) step.modules = {program_.steps.front().modules.front()};
    program_.values.push_back(std::move(copy));
    roots_.push_back(id);
    program_.steps.insert(program_.steps.begin(), std::move(step));
    for (StepGroup& group : groups_) {
      for (int& index : group) ++index;
    }
    return id;
  }

  Program program_;
  std::vector<int> roots_;
  std::set<int> state_, inputs_, entangled_;
  std::vector<StepGroup> groups_;
};

bool is_assertion(const std::string& name) { return name.starts_with("_assert") || name.starts_with("sym_constrain_range"); }

}  // namespace

bool is_in_place(const ProgramStep& step) {
  const std::string name = operator_name(step);
  return step.target.starts_with("aten.") && name.ends_with('_') && !name.ends_with("__");
}

bool is_view(const ProgramStep& step) { return step.target.starts_with("aten.") && view_operators().contains(operator_name(step)); }

bool is_random(const ProgramStep& step) {
  const std::string name = without_underscore(operator_name(step));
  if (random_operators().contains(name)) return true;
  if (name != "scaled_dot_product_attention" && name != "lstm" && name != "gru" && name != "rnn_tanh" && name != "rnn_relu") return false;
  const Argument* dropout = step.find(name == "scaled_dot_product_attention" ? "dropout_p" : "dropout");
  return dropout != nullptr && dropout->number > 0;
}

bool is_scalar(const Program& program, const ProgramStep& step) {
  const std::vector<int> results = step.writes();
  return !results.empty() && std::all_of(results.begin(), results.end(),
                                         [&](int id) { return program.values[static_cast<std::size_t>(id)].kind != ProgramValue::Kind::Tensor; });
}

std::vector<int> memory_roots(const Program& program) {
  std::vector<int> roots(program.values.size());
  for (std::size_t i = 0; i < roots.size(); ++i) roots[i] = static_cast<int>(i);
  for (const ProgramStep& step : program.steps) {
    if ((!is_view(step) && !is_in_place(step)) || step.first_value() < 0) continue;
    for (const int id : step.writes()) roots[static_cast<std::size_t>(id)] = roots[static_cast<std::size_t>(step.first_value())];
  }
  return roots;
}

std::vector<int> changed_buffers(const Program& program, const std::vector<int>& roots, const ProgramStep& step) {
  std::vector<int> result;
  const auto add = [&](int value) {
    const int root = roots[static_cast<std::size_t>(value)];
    const bool is_buffer = std::any_of(program.buffers.begin(), program.buffers.end(), [&](const ProgramTensor& b) { return b.value == root; });
    if (is_buffer) result.push_back(root);
  };
  if (is_in_place(step) && step.first_value() >= 0) add(step.first_value());
  const std::string name = operator_name(step);
  if (name != "batch_norm" && name != "instance_norm") return result;
  const Argument* training = step.find(name == "batch_norm" ? "training" : "use_input_stats");
  if (training == nullptr || training->integer == 0) return result;
  for (const char* statistics : {"running_mean", "running_var"}) {
    const Argument* buffer = step.find(statistics);
    if (buffer != nullptr && buffer->is_value()) add(static_cast<int>(buffer->integer));
  }
  return result;
}

FunctionalProgram replace_in_place(Program program) { return InPlace(std::move(program)).run(); }

void remove_unused(FunctionalProgram& functional) {
  Program& program = functional.program;
  const std::vector<int> roots = memory_roots(program);
  std::set<int> grouped;
  for (const StepGroup& group : functional.groups) grouped.insert(group.begin(), group.end());
  std::vector<bool> needed(program.values.size(), false), kept(program.steps.size(), false);
  for (const ProgramOutput& output : program.outputs) {
    if (output.value >= 0) needed[static_cast<std::size_t>(output.value)] = true;
  }
  for (std::size_t i = program.steps.size(); i-- > 0;) {
    const ProgramStep& step = program.steps[i];
    const std::vector<int> results = step.writes();
    const bool is_needed = std::any_of(results.begin(), results.end(), [&](int id) { return needed[static_cast<std::size_t>(id)]; });
    // A step of batch norm whose result nobody reads would still change statistics: it stays only where PyTorch would keep it too.
    kept[i] =
        !is_assertion(operator_name(step)) && (is_needed || grouped.contains(static_cast<int>(i)) || !changed_buffers(program, roots, step).empty());
    if (!kept[i]) continue;
    for (const int id : step.reads()) needed[static_cast<std::size_t>(id)] = true;
  }
  std::vector<int> moved(program.steps.size(), -1);
  std::vector<ProgramStep> steps;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    moved[i] = static_cast<int>(steps.size());
    steps.push_back(std::move(program.steps[i]));
  }
  program.steps = std::move(steps);
  for (StepGroup& group : functional.groups) {
    for (int& index : group) index = moved[static_cast<std::size_t>(index)];
  }
}

}  // namespace pipedream
