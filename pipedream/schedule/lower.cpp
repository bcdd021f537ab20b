#include <algorithm>

#include "pipedream/schedule/generators.hpp"
#include "pipedream/schedule/passes.hpp"

namespace pipedream {
namespace {

bool is_generated(ActionKind kind) { return kind == ActionKind::Forward || is_backward(kind) || kind == ActionKind::Step; }

Schedule run_passes(const Schedule& schedule, const LoweringOptions& options) {
  Schedule result = add_reductions(assign_versions(schedule), options.overlap_reductions);
  if (std::find(options.recompute.begin(), options.recompute.end(), true) != options.recompute.end())
    result = add_recompute(result, options.recompute);
  result = add_communication(result);
  if (options.receive_buffers > 0) result = hoist_receives(result, options.receive_buffers);
  if (options.group_transfers) result = group_communication(result);
  return add_drops(result);
}

// Where the repetitions of the body begin in the lowered lists: passes insert, they do not move what was generated, so counting finds it.
std::vector<std::vector<std::size_t>> find_marks(const Schedule& window, const ActionLists& lowered) {
  std::vector<std::vector<std::size_t>> marks(lowered.size());
  for (std::size_t rank = 0; rank < lowered.size(); ++rank) {
    const RankProgram& program = window.ranks[rank];
    std::size_t position = 0, seen = 0;
    for (int k = 0; k <= window.repeats; ++k) {
      const std::size_t target = program.prologue.size() + static_cast<std::size_t>(k) * program.body.size();
      while (position < lowered[rank].size() && (seen < target || !is_generated(lowered[rank][position].kind))) {
        if (is_generated(lowered[rank][position].kind)) ++seen;
        ++position;
      }
      marks[rank].push_back(position);
    }
  }
  return marks;
}

}  // namespace

Schedule lower(const Schedule& schedule, const LoweringOptions& options) {
  if (schedule.repeats < 2) return run_passes(schedule, options);
  int replicas = 0;  // bounds how many micro-batches lie between entering the pipe and steady state
  for (const auto& ranks : schedule.chunk_ranks) replicas += static_cast<int>(ranks.size());
  const int settle = 3 + replicas / schedule.body_micro_batches;
  for (const int repeats : {2 * settle, 6 * settle}) {
    const Schedule window = truncated(schedule, repeats);
    const Schedule lowered = run_passes(window, options);
    const ActionLists lists = action_lists(lowered);
    Schedule folded = lowered;
    folded.body_micro_batches = schedule.body_micro_batches;
    folded.body_versions = schedule.body_versions;
    folded.chunk_body_versions = schedule.chunk_body_versions;
    if (fold(folded, lists, find_marks(window, lists), schedule.repeats - window.repeats)) return folded;
    if (window.repeats == schedule.repeats) return lowered;
  }
  return run_passes(schedule, options);
}

}  // namespace pipedream
