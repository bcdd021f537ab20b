#pragma once

#include <functional>

#include "pipedream/schedule/generate.hpp"

/// What generators share. A generator is a function from a request to compute and optimizer actions, in a file of its own; generate.cpp has the
/// table that names them (docs/schedules.md shows how to add one).
namespace pipedream {

[[nodiscard]] Schedule generate_1f1b_async(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_1f1b(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_gpipe(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_model_parallel(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_data_parallel(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_asp(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_interleaved(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_looped_bfs(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_zero_bubble_h1(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_zero_bubble_h2(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_zero_bubble_auto(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_zero_bubble_v(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_v_half(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_v_min(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_seq_1f1b(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_chimera(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_dual_pipe(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_dual_pipe_v(const ScheduleRequest& request);
[[nodiscard]] Schedule generate_wpipe(const ScheduleRequest& request);

/// @throws UsageError unless every stage k of an even number p lies on ranks k and p - 1 - k (Placement::Mirror)
void require_mirror(const Schedule& schedule);

/// A schedule with everything but its actions: names, chunks, edges (a chain where the request has none), counts.
/// @throws UsageError if chunks have no ranks, a rank is twice in a chunk, ranks have gaps or counts are below 1
[[nodiscard]] Schedule empty_schedule(const ScheduleRequest& request);

/// Micro-batches first .. first + count - 1, which are one mini-batch, as forward and backward actions per rank.
using MiniBatchGenerator = std::function<ActionLists(const Schedule& schedule, int first, int count)>;

/// A flushing schedule: the body is one mini-batch (as many as it takes until every replica is in its place again), the epilogue the rest.
/// Adds the optimizer steps: after the last backward of a chunk; at the end of the mini-batch where a rank holds several replicated chunks, so
/// that no rank waits for a reduction while it has work to do.
[[nodiscard]] Schedule flushing_schedule(const ScheduleRequest& request, const MiniBatchGenerator& generator);

/// The micro-batches of first .. first + count - 1 that run on this rank's replica of a chunk, ascending.
[[nodiscard]] std::vector<int> own_micro_batches(const Schedule& schedule, int chunk, int rank, int first, int count);

/// Folds an unrolled list into prologue, body and epilogue. `marks[rank]` are the positions where the repetitions of the body begin, and one
/// more where the last one ends. False, and `schedule` untouched, if the repetitions differ by more than their numbers. `schedule` has the
/// body's numbers set; its micro_batches are those of `lists`; `more` repetitions are added.
[[nodiscard]] bool fold(Schedule& schedule, const ActionLists& lists, const std::vector<std::vector<std::size_t>>& marks, int more);

}  // namespace pipedream
