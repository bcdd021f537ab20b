#include "pipedream/model/import/program_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/model/import/aliases.hpp"

namespace pipedream {
namespace {

constexpr std::size_t kShownProblems = 8;

const Argument* find_kind(const Argument& argument, Argument::Kind kind) {
  if (argument.kind == kind) return &argument;
  for (const Argument& element : argument.elements) {
    if (const Argument* found = find_kind(element, kind)) return found;
  }
  return nullptr;
}

std::string control_flow_remedy(const std::string& name) {
  if (name.find("autocast") != std::string::npos) return "export the model without autocast; convert tensors with .to(dtype) where needed";
  if (name.find("set_grad_enabled") != std::string::npos) return "replace torch.no_grad() by .detach()";
  if (name == "cond") return "compute both branches and choose with torch.where, or move the decision out of the model";
  return "write the loop out, or move it out of the model";
}

void check_step(const Program& program, const ProgramStep& step, std::vector<ImportProblem>& problems) {
  const std::string name = operator_name(step);
  const auto report = [&](std::string what, std::string remedy) { problems.push_back({place_of(step), std::move(what), std::move(remedy)}); };
  if (step.target.starts_with("higher_order.")) {
    report(fmt::format("{} is control flow or a region of its own, which is not run here", name), control_flow_remedy(name));
    return;
  }
  const bool is_arithmetic = step.target.starts_with("_operator.") || step.target.starts_with("math.") || step.target.starts_with("torch.sym_");
  if (!step.target.starts_with("aten.") && !is_arithmetic) {
    report(fmt::format("the operator {} is not one of PyTorch's own", step.target), "replace it by PyTorch's operators before export");
    return;
  }
  if (name == "item" || name == "_local_scalar_dense" || name == "nonzero" || name == "masked_select" || name == "unique") {
    report(fmt::format("{} makes a number or a size out of the values of a tensor", name), "keep it a tensor: multiply by it, or use torch.where");
    return;
  }
  for (const NamedArgument& argument : step.arguments) {
    if (const Argument* found = find_kind(argument.value, Argument::Kind::Unsupported)) {
      report(fmt::format("the argument {} of {} is of the kind {}, which cannot be run here", argument.name, name, found->text),
             found->text == "as_complex" ? "use real numbers" : "export the model without Python objects in it");
    }
  }
  const int first = step.first_value();
  if (!is_in_place(step) || first < 0) return;
  const int root = memory_roots(program)[static_cast<std::size_t>(first)];
  for (const ProgramTensor& parameter : program.parameters) {
    if (parameter.value == root)
      report(fmt::format("{} changes the parameter {} during the forward", name, parameter.name),
             "change parameters in the optimizer only, or make it a buffer");
  }
}

void check_inputs(const Program& program, std::vector<ImportProblem>& problems) {
  if (program.inputs.empty()) problems.push_back({"", "the model has no tensor as input", "export it with an example input"});
  std::string symbol;
  for (const ProgramInput& input : program.inputs) {
    const auto& type = program.values[static_cast<std::size_t>(input.value)].type;
    if (type && !type->sizes.empty() && type->sizes[0].is_symbolic() && symbol.empty()) symbol = type->sizes[0].expression;
  }
  std::int64_t batch = -1;
  for (const ProgramInput& input : program.inputs) {
    const auto& type = program.values[static_cast<std::size_t>(input.value)].type;
    if (!type) {
      problems.push_back({"input " + input.name, "the file does not say its shape", "export the model again"});
      continue;
    }
    const bool has_batch =
        !type->sizes.empty() && (symbol.empty() ? batch < 0 || type->sizes[0].value == batch : type->sizes[0].expression == symbol);
    if (!has_batch) {
      problems.push_back({"input " + input.name, fmt::format("its shape is {}: the batch is not its first dimension", print_type(*type)),
                          "let every input have the batch first and transpose inside the model; make what does not depend on the sample a buffer"});
      continue;
    }
    batch = type->sizes[0].value;
    for (std::size_t i = 1; i < type->sizes.size(); ++i) {
      if (type->sizes[i].is_symbolic() && symbol.empty()) {
        problems.push_back({"input " + input.name, fmt::format("its shape is {}: the batch is not its first dimension", print_type(*type)),
                            "let every input have the batch first and transpose inside the model"});
        break;
      }
    }
  }
}

void check_outputs(const Program& program, std::vector<ImportProblem>& problems) {
  const auto is_made = [&](int value) {
    return std::any_of(program.steps.begin(), program.steps.end(), [&](const ProgramStep& step) {
      const std::vector<int> writes = step.writes();
      return std::find(writes.begin(), writes.end(), value) != writes.end();
    });
  };
  const bool has_output =
      std::any_of(program.outputs.begin(), program.outputs.end(), [&](const ProgramOutput& o) { return o.value >= 0 && is_made(o.value); });
  if (!has_output) problems.push_back({"", "the model computes no tensor", "return the prediction or the loss from forward"});
}

}  // namespace

std::string place_of(const ProgramStep& step) {
  const std::string path = step.modules.empty() ? "" : step.modules.back().path;
  const std::string where = path.empty() ? step.name : path;
  return step.source.empty() ? where : fmt::format("{} ({})", where, step.source);
}

std::vector<ImportProblem> check_program(const Program& program) {
  std::vector<ImportProblem> problems;
  for (const auto& [what, remedy] : program.unsupported) problems.push_back({"", what, remedy});
  for (const ProgramStep& step : program.steps) check_step(program, step, problems);
  check_inputs(program, problems);
  check_outputs(program, problems);
  return problems;
}

void refuse(const std::vector<ImportProblem>& problems, const std::string& file) {
  if (problems.empty()) return;
  const auto line = [](const ImportProblem& p) { return (p.place.empty() ? "" : p.place + ": ") + p.what; };
  if (problems.size() == 1) throw InputError(file, line(problems.front()), problems.front().remedy);
  std::string text = fmt::format("the model cannot be trained here, for {} reasons:", problems.size());
  std::set<std::string> remedies;
  for (std::size_t i = 0; i < problems.size() && i < kShownProblems; ++i) {
    text += "\n  " + line(problems[i]);
    if (!problems[i].remedy.empty()) remedies.insert(problems[i].remedy);
  }
  if (problems.size() > kShownProblems) text += fmt::format("\n  and {} more; pipedream inspect shows all", problems.size() - kShownProblems);
  throw InputError(file, text, fmt::format("{}", fmt::join(remedies, "; ")));
}

BatchSize batch_size_of(const Program& program) {
  BatchSize batch;
  for (const ProgramInput& input : program.inputs) {
    const Dimension& size = program.values[static_cast<std::size_t>(input.value)].type->sizes.front();
    batch.example = size.value;
    if (size.is_symbolic()) batch.symbol = size.expression;
  }
  if (!batch.symbol.empty()) return batch;
  // Sizes are given to views, expansions and new tensors as lists of integers; one of them being the batch, it is taken for the batch.
  for (const ProgramStep& step : program.steps) {
    for (const NamedArgument& argument : step.arguments) {
      const bool is_size = argument.name == "size" || argument.name == "shape" || argument.name == "sizes" || argument.name == "repeats";
      if (!is_size || argument.value.kind != Argument::Kind::List) continue;
      const auto& elements = argument.value.elements;
      const bool has_batch = std::any_of(elements.begin(), elements.end(),
                                         [&](const Argument& e) { return e.kind == Argument::Kind::Integer && e.integer == batch.example; });
      if (!has_batch || batch.fixed) continue;
      batch.fixed = true;
      batch.fixed_by = fmt::format("{}: {}", place_of(step), print_step(program, step));
    }
  }
  return batch;
}

}  // namespace pipedream
