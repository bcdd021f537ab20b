#include "pipedream/schedule/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/validation.hpp"

namespace pipedream {
namespace {

constexpr int kColumnsBefore = 6, kColumns = 13;

bool any_action(const ActionLists& lists, bool (*test)(const Action&)) {
  return std::any_of(lists.begin(), lists.end(), [&](const auto& list) { return std::any_of(list.begin(), list.end(), test); });
}

Finding check_shape(const Schedule& schedule) {
  const auto fail = [](std::string what) { return Finding(Violation{RuleGroup::Placement, std::move(what), -1, -1, {}}); };
  if (schedule.chunk_ranks.empty()) return fail("there are no chunks");
  if (schedule.micro_batches < 1 || schedule.slices < 1 || schedule.step_micro_batches < 1)
    return fail("counts of micro-batches and slices must be at least 1");
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    if (ranks.empty()) return fail(fmt::format("chunk {} is on no rank", chunk));
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < 0 || ranks[i] >= schedule.num_ranks())
        return fail(fmt::format("chunk {} is on rank {}, but ranks are 0 to {}", chunk, ranks[i], schedule.num_ranks() - 1));
      if (std::find(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(i), ranks[i]) != ranks.begin() + static_cast<std::ptrdiff_t>(i))
        return fail(fmt::format("chunk {} is twice on rank {}", chunk, ranks[i]));
    }
  }
  return {};
}

}  // namespace

std::string_view name_of(RuleGroup group) {
  constexpr std::array<std::string_view, 9> kNames{"completeness", "local order", "deadlock",    "matching", "versions",
                                                   "accumulation", "memory",      "collectives", "placement"};
  return kNames[static_cast<std::size_t>(group) - 1];
}

namespace {

// The schedule that is looked at, and what is wrong with it.
Finding find_in(const Schedule& flat, const ValidationOptions& options) {
  if (Finding found = check_shape(flat)) return found;
  Checked checked{flat, options, action_lists(flat), chunk_graph(flat), WorkIndex(flat)};
  checked.has_transfers = options.require_transfers || any_action(checked.lists, [](const Action& a) { return is_transfer(a.kind); });
  checked.has_versions = options.require_versions || any_action(checked.lists, [](const Action& a) { return a.version != Action::kNone; });
  checked.has_drops = any_action(checked.lists, [](const Action& a) { return a.kind == ActionKind::Drop; });
  checked.has_reductions = options.require_transfers || any_action(checked.lists, [](const Action& a) { return a.kind == ActionKind::Reduce; });
  for (const auto check :
       {check_placement, check_completeness, check_local_order, check_matching, check_collectives, check_deadlock, check_versions, check_memory})
    if (Finding found = check(checked)) return found;
  return {};
}

/// Prologue, bodies and epilogue that stand for the whole schedule: two bodies, and more where the prologue reaches further ahead (receives that were
/// moved forward). Not more than the prologue can mean: a broken file must not make this large.
Schedule checked_window(const Schedule& schedule) {
  std::int64_t furthest = 0, longest = 0;
  for (const RankProgram& program : schedule.ranks) {
    longest = std::max(longest, static_cast<std::int64_t>(program.prologue.size()));
    for (const Action& action : program.prologue) furthest = std::max(furthest, static_cast<std::int64_t>(action.micro_batch));
  }
  std::int64_t bodies = 2;
  if (schedule.body_micro_batches > 0) {
    const std::int64_t to_spare = (std::int64_t{schedule.micro_batches} - 1 - furthest) / schedule.body_micro_batches;
    bodies = std::max(bodies, std::min(schedule.repeats - std::max<std::int64_t>(0, to_spare), longest + 2));
  }
  return truncated(schedule, static_cast<int>(bodies));
}

}  // namespace

Finding find_violation(const Schedule& schedule, const ValidationOptions& options) {
  if (Finding found = check_shape(schedule)) return found;
  return find_in(unrolled(checked_window(schedule)), options);
}

void validate(const Schedule& schedule, const ValidationOptions& options) {
  const Finding found = find_violation(schedule, options);
  if (!found) return;
  std::string text = fmt::format("the schedule is wrong ({}): {}", name_of(found->group), found->what);
  for (const std::string& line : found->cycle) text += "\n  " + line;
  if (found->rank >= 0) {
    const ActionLists lists = action_lists(checked_window(schedule));
    text += "\n" + grid_text(lists, std::max(0, found->index - kColumnsBefore), kColumns, found->rank, found->index);
    text.pop_back();
  }
  throw InputError(schedule.name, text, "the cell between > and < is the first that cannot be right");
}

}  // namespace pipedream
