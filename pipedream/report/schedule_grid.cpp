#include "pipedream/report/schedule_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace pipedream {
namespace {

constexpr int kLabelWidth = 8;  // "rank 12 "

bool is_shown(const TimedAction& timed) {
  return is_compute(timed.action.kind) && timed.action.kind != ActionKind::Predict && timed.end_ms > timed.start_ms;
}

const char* color_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return "\x1b[44;97m";
    case ActionKind::Recompute:
      return "\x1b[46;30m";
    case ActionKind::Backward:
    case ActionKind::BackwardInput:
      return "\x1b[42;30m";
    case ActionKind::BackwardWeight:
      return "\x1b[43;30m";
    default:
      return "\x1b[45;97m";
  }
}

std::string label(const Action& action, bool with_chunk) {
  std::string text = with_chunk ? fmt::format("{}{}{}", action.chunk, letters(action.kind), action.micro_batch)
                                : fmt::format("{}{}", letters(action.kind), action.micro_batch);
  if (action.slice > 0) text += fmt::format(".{}", action.slice);
  return text;
}

struct Scale {
  double ms_per_column = 1, end_ms = 0;
  bool with_chunk = false;
};

// The shortest action gets as many columns as the longest label, as far as the width lets it; what does not fit is cut off on the right.
Scale scale_of(const Trace& trace, int columns) {
  Scale scale;
  double shortest = 0, makespan = 0;
  std::size_t longest_label = 1;
  std::set<std::pair<int, int>> chunks;
  std::set<int> ranks;
  for (const TimedAction& timed : trace.actions) {
    if (!is_shown(timed)) continue;
    const double duration = timed.end_ms - timed.start_ms;
    if (timed.action.kind != ActionKind::Step) shortest = shortest == 0 ? duration : std::min(shortest, duration);
    makespan = std::max(makespan, timed.end_ms);
    chunks.emplace(timed.rank, timed.action.chunk);
    ranks.insert(timed.rank);
  }
  scale.with_chunk = chunks.size() > ranks.size();
  for (const TimedAction& timed : trace.actions)
    if (is_shown(timed)) longest_label = std::max(longest_label, label(timed.action, scale.with_chunk).size());
  scale.ms_per_column = shortest > 0 ? shortest / static_cast<double>(longest_label + 1) : 1;
  scale.end_ms = std::min(makespan, scale.ms_per_column * columns);
  return scale;
}

struct Cells {
  std::string text;
  std::vector<char> kind;  ///< per column, -1 idle
};

Cells cells_of(const Trace& trace, int rank, const Scale& scale, int columns) {
  Cells cells{std::string(static_cast<std::size_t>(columns), ' '), std::vector<char>(static_cast<std::size_t>(columns), -1)};
  for (const TimedAction& timed : trace.actions) {
    if (timed.rank != rank || !is_shown(timed)) continue;
    const auto begin = static_cast<std::int64_t>(std::lround(timed.start_ms / scale.ms_per_column));
    const auto end = std::min<std::int64_t>(std::max<std::int64_t>(begin + 1, std::lround(timed.end_ms / scale.ms_per_column)), columns);
    if (begin >= columns) continue;
    const std::string text = label(timed.action, scale.with_chunk);
    for (std::int64_t column = begin; column < end; ++column) {
      const auto at = static_cast<std::size_t>(column), offset = static_cast<std::size_t>(column - begin);
      cells.kind[at] = static_cast<char>(timed.action.kind);
      cells.text[at] = offset < text.size() ? text[offset] : column + 1 < end ? '-' : ' ';
    }
  }
  return cells;
}

std::string line_of(const Cells& cells, bool color) {
  std::string line;
  for (std::size_t column = 0; column < cells.text.size(); ++column) {
    const bool idle = cells.kind[column] < 0;
    if (!color) {
      line += idle ? '.' : cells.text[column];
      continue;
    }
    if (column == 0 || cells.kind[column] != cells.kind[column - 1]) line += idle ? "\x1b[0m" : color_of(static_cast<ActionKind>(cells.kind[column]));
    line += idle ? ' ' : cells.text[column];
  }
  if (color) return line + "\x1b[0m";
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

std::string schedule_grid(const Trace& trace, const GridOptions& options) {
  const int columns = std::max(10, options.width - kLabelWidth);
  const Scale scale = scale_of(trace, columns);
  const int used = std::min(columns, static_cast<int>(std::ceil(scale.end_ms / scale.ms_per_column - 1e-9)));
  double makespan = 0;
  for (const TimedAction& timed : trace.actions) makespan = std::max(makespan, timed.end_ms);
  std::string text;
  for (int rank = 0; rank < trace.num_ranks; ++rank)
    text += fmt::format("rank {:>2} {}\n", rank, line_of(cells_of(trace, rank, scale, used), options.color));
  if (makespan > scale.end_ms * (1 + 1e-9))
    text += fmt::format("(the first {:.4g} ms of {:.6g} ms; a column is {:.3g} ms)\n", scale.end_ms, makespan, scale.ms_per_column);
  return text;
}

}  // namespace pipedream
