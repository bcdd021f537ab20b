#include "pipedream/report/compare_schedules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace pipedream {

std::string semantics_of(const Schedule& schedule) {
  if (replicas_step_alone(schedule)) return "late, not bounded";
  int most = 0;
  bool predicts = false;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<int> steps(static_cast<std::size_t>(schedule.num_chunks()), 0);
    for_each_action(schedule, rank, [&](const Action& action) {
      predicts = predicts || action.kind == ActionKind::Predict;
      if (action.kind == ActionKind::Step) ++steps[static_cast<std::size_t>(action.chunk)];
      if (gives_gradient(action.kind) && action.version != Action::kNone)
        most = std::max(most, steps[static_cast<std::size_t>(action.chunk)] - action.version);
    });
  }
  if (most == 0) return "synchronous";
  return fmt::format("{}{} step{} late{}", most > 1 ? "up to " : "", most, most > 1 ? "s" : "", predicts ? ", predicted" : "");
}

ComparedSchedule compared(const Schedule& schedule, const SimulationResult& result) {
  ComparedSchedule entry{schedule.name, schedule.policy, semantics_of(schedule), result.period_ms, result.bubble, 0, 1, 1, {}};
  // A rank of a schedule with two copies of the model holds two stages, each of a whole rank's share.
  const bool two_copies = schedule.name == "chimera" || schedule.name == "dualpipe";
  const bool whole_model = schedule.name == "data-parallel" || replicas_step_alone(schedule);
  const int replicas = static_cast<int>(schedule.chunk_ranks.front().size());
  entry.model_copies = replicas;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    const double chunks = two_copies ? 1 : static_cast<double>(std::max<std::size_t>(1, chunks_of(schedule, static_cast<int>(rank)).size()));
    entry.peak_activations =
        std::max(entry.peak_activations, result.ranks[rank].peak_activations * (whole_model ? schedule.num_ranks() : 1) / chunks / schedule.slices);
    entry.versions = std::max(entry.versions, result.ranks[rank].peak_versions);
  }
  return entry;
}

Table comparison_table(std::vector<ComparedSchedule> schedules) {
  std::stable_sort(schedules.begin(), schedules.end(), [](const ComparedSchedule& a, const ComparedSchedule& b) {
    if (a.reason.empty() != b.reason.empty()) return a.reason.empty();
    if (std::abs(a.period_ms - b.period_ms) > 1e-9 * std::max(1.0, b.period_ms)) return a.period_ms < b.period_ms;
    return a.peak_activations < b.peak_activations;
  });
  Table table({"schedule", "policy", "ms/micro-batch", "bubble", "activations", "versions", "copies", "gradients"});
  for (const ComparedSchedule& entry : schedules) {
    if (!entry.reason.empty()) table.add_row({entry.name, entry.policy, "-", "-", "-", "-", "-", entry.reason});
    else
      table.add_row({entry.name, entry.policy, format_number(entry.period_ms, 5), format_share(entry.bubble),
                     format_number(entry.peak_activations, 4), fmt::format("{}", entry.versions), fmt::format("{}", entry.model_copies),
                     entry.semantics});
  }
  return table;
}

}  // namespace pipedream
