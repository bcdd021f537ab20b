#include <fmt/format.h>
#include <fmt/ranges.h>

#include "pipedream/schedule/csv.hpp"

namespace pipedream {
namespace {

std::string facts(const Schedule& schedule) {
  std::string chunks, edges;
  for (const auto& ranks : schedule.chunk_ranks) chunks += fmt::format("{}{}", chunks.empty() ? "" : " ", fmt::join(ranks, ","));
  for (const auto& [source, target] : schedule.edges) edges += fmt::format("{}{}>{}", edges.empty() ? "" : " ", source, target);
  std::string text =
      fmt::format("# pipedream.schedule/1\n# name {}\n# policy {}\n# chunks {}\n# edges {}\n# micro-batches {}\n# per-step {}\n# slices {}\n",
                  schedule.name, schedule.policy, chunks, edges, schedule.micro_batches, schedule.step_micro_batches, schedule.slices);
  if (schedule.repeats > 0 || schedule.body_micro_batches > 0)
    text += fmt::format("# body {} {} {}\n", schedule.repeats, schedule.body_micro_batches,
                        schedule.chunk_body_versions.empty() ? fmt::format("{}", schedule.body_versions)
                                                             : fmt::format("{}", fmt::join(schedule.chunk_body_versions, ",")));
  return text;
}

void append_cell(std::string& line, const std::string& cell) {
  if (!line.empty()) line += ',';
  line += cell;
}

std::string full_row(const RankProgram& program) {
  std::string line;
  for (const Action& action : program.prologue) append_cell(line, to_string(action));
  if (!program.body.empty() || !program.epilogue.empty()) {
    append_cell(line, "[");
    for (const Action& action : program.body) append_cell(line, to_string(action));
    append_cell(line, "]");
  }
  for (const Action& action : program.epilogue) append_cell(line, to_string(action));
  return line;
}

bool known_to_torch(ActionKind kind, CsvForm form) {
  const bool computes = kind == ActionKind::Forward || is_backward(kind);
  return computes || (form == CsvForm::Torch && is_transfer(kind));
}

std::string torch_row(const std::vector<Action>& list, CsvForm form) {
  std::string line;
  const auto text = [](const Action& action) {
    return fmt::format("{}{}{}{}", action.chunk, letters(action.kind), action.micro_batch, action.slice > 0 ? fmt::format("s{}", action.slice) : "");
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!known_to_torch(list[i].kind, form)) continue;
    if (list[i].joined && !is_transfer(list[i].kind) && i + 1 < list.size()) {
      append_cell(line, fmt::format("({};{})OVERLAP_F_B", text(list[i]), text(list[i + 1])));
      ++i;
    } else {
      append_cell(line, text(list[i]));
    }
  }
  return line;
}

}  // namespace

std::string schedule_to_csv(const Schedule& schedule, CsvForm form) {
  std::string text = form == CsvForm::Full ? facts(schedule) : "";
  if (form == CsvForm::Full) {
    for (const RankProgram& program : schedule.ranks) {
      const std::string row = full_row(program);
      text += (row.empty() ? "[,]" : row) + "\n";
    }
    return text;
  }
  for (const auto& list : action_lists(schedule)) text += torch_row(list, form) + "\n";
  return text;
}

}  // namespace pipedream
