#include "pipedream/schedule/schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ostream>

namespace pipedream {
namespace {

// The epilogue's numbers are absolute, so they move when repetitions of the body go.
Action moved_back(const Schedule& schedule, Action action, int repetitions) { return schedule.shifted(action, -repetitions); }

std::string cell_text(const Action& action) { return to_string(action); }

std::string ranks_text(const std::vector<std::vector<int>>& chunk_ranks) {
  std::string text;
  for (const auto& ranks : chunk_ranks) text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(ranks, ","));
  return text;
}

}  // namespace

ActionLists action_lists(const Schedule& schedule) {
  ActionLists lists(schedule.ranks.size());
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    auto& list = lists[static_cast<std::size_t>(rank)];
    const RankProgram& program = schedule.ranks[static_cast<std::size_t>(rank)];
    list.reserve(program.prologue.size() + program.body.size() * static_cast<std::size_t>(schedule.repeats) + program.epilogue.size());
    for_each_action(schedule, rank, [&](const Action& action) { list.push_back(action); });
  }
  return lists;
}

Schedule unrolled(const Schedule& schedule) {
  Schedule result = schedule;
  ActionLists lists = action_lists(schedule);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) result.ranks[rank] = RankProgram{std::move(lists[rank]), {}, {}};
  result.repeats = result.body_micro_batches = result.body_versions = 0;
  result.chunk_body_versions.clear();
  return result;
}

Schedule truncated(const Schedule& schedule, int repeats) {
  if (schedule.repeats <= repeats) return schedule;
  Schedule result = schedule;
  const int fewer = schedule.repeats - repeats;
  result.repeats = repeats;
  result.micro_batches -= fewer * schedule.body_micro_batches;
  for (RankProgram& program : result.ranks)
    for (Action& action : program.epilogue) action = moved_back(schedule, action, fewer);
  return result;
}

std::int64_t num_actions(const Schedule& schedule) {
  std::int64_t count = 0;
  for (const RankProgram& program : schedule.ranks)
    count += static_cast<std::int64_t>(program.prologue.size() + program.epilogue.size()) +
             static_cast<std::int64_t>(program.body.size()) * schedule.repeats;
  return count;
}

bool replicas_step_alone(const Schedule& schedule) { return schedule.name == "asp"; }

int micro_batches_per_step(const Schedule& schedule, int chunk) {
  if ((schedule.name != "1f1b-async" && !replicas_step_alone(schedule)) || schedule.step_micro_batches > 1) return schedule.step_micro_batches;
  return static_cast<int>(schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size());
}

int num_steps(const Schedule& schedule, int chunk) {
  const int each = micro_batches_per_step(schedule, chunk);
  return (schedule.micro_batches + each - 1) / each;
}

std::vector<int> chunks_of(const Schedule& schedule, int rank) {
  std::vector<int> chunks;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) chunks.push_back(chunk);
  }
  return chunks;
}

std::string grid_text(const ActionLists& lists, int first, int columns, int mark_rank, int mark_index) {
  std::size_t last = 0;
  for (const auto& list : lists) last = std::max(last, list.size());
  last = std::min(last, static_cast<std::size_t>(first + columns));
  const auto begin = static_cast<std::size_t>(first);
  std::vector<std::size_t> widths(last > begin ? last - begin : 0, 0);
  auto cell = [&](std::size_t rank, std::size_t index) {
    std::string text = index < lists[rank].size() ? cell_text(lists[rank][index]) : std::string();
    const bool marked = static_cast<int>(rank) == mark_rank && static_cast<int>(index) == mark_index;
    return marked ? ">" + (text.empty() ? std::string("(end)") : text) + "<" : text;
  };
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    for (std::size_t column = 0; column < widths.size(); ++column) widths[column] = std::max(widths[column], cell(rank, begin + column).size());
  std::string text;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    std::string line = fmt::format("rank {:>2} {}", rank, first > 0 ? "... " : "| ");
    for (std::size_t column = 0; column < widths.size(); ++column) line += fmt::format("{:<{}} ", cell(rank, begin + column), widths[column]);
    if (lists[rank].size() > last) line += "...";
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Schedule& schedule) {
  out << fmt::format("{} ({}): {} micro-batches, {} per step, chunks on ranks {}", schedule.name, schedule.policy, schedule.micro_batches,
                     schedule.step_micro_batches, ranks_text(schedule.chunk_ranks));
  if (schedule.repeats > 0) out << fmt::format(", body of {} micro-batches x {}", schedule.body_micro_batches, schedule.repeats);
  return out << "\n" << grid_text(action_lists(truncated(schedule, 2)), 0, 24);
}

}  // namespace pipedream
