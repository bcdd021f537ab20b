#pragma once

#include "pipedream/schedule/schedule.hpp"

/// Passes add to a generated schedule what is not computation, each a pure function. They work on unrolled schedules (everything in the prologue);
/// lower() runs them all and folds the result again.
namespace pipedream {

/// Fills the version every action reads, by the policy of its chunk, and adds Predict where the policy predicts. Lags come from the list, never
/// from a formula. @throws UsageError if the policy does not suit the schedule (2bw with fewer micro-batches per step than ranks in the pipe)
[[nodiscard]] Schedule assign_versions(const Schedule& schedule);

/// Adds a Reduce before every Step of a chunk with several replicas. With `overlap` it stands right after the last backward of the period, and
/// a Wait before the Step, so that it runs beside other work.
[[nodiscard]] Schedule add_reductions(const Schedule& schedule, bool overlap = false);

/// Adds a send right after every action whose result another rank needs, and the receive on that rank where time has come to in a walk with
/// unit costs. Both ends enter their lists at the same moment, so one order of all transfers agrees with the lists of all ranks: messages between
/// two ranks pair up first in, first out, and even a transport without any buffer cannot hang. @throws InputError if the actions wait for each other
[[nodiscard]] Schedule add_communication(const Schedule& schedule);

/// Joins transfers that are neighbours in a list and go opposite ways between the same two ranks, so that they are posted as one group.
[[nodiscard]] Schedule group_communication(const Schedule& schedule);

/// Moves every receive as early as `buffers` received but not yet used messages per pair of ranks and direction allow, never before another
/// receive from the same rank. Only for transports that post receives and wait where they are used (ValidationOptions::posted_receives).
[[nodiscard]] Schedule hoist_receives(const Schedule& schedule, int buffers);

/// Adds a Recompute before the backward of the chunks that are marked.
[[nodiscard]] Schedule add_recompute(const Schedule& schedule, const std::vector<bool>& chunks);

/// Replaces an input part directly followed by its weight part with the whole backward. With `only_first` only where no chunk waits for the
/// gradient of the inputs, so that nobody gets it later.
[[nodiscard]] Schedule merge_backward(const Schedule& schedule, bool only_first = false);

/// Adds a Drop after the last action that reads a version, the step that starts from it included.
[[nodiscard]] Schedule add_drops(const Schedule& schedule);

struct LoweringOptions {
  std::vector<bool> recompute;  ///< per chunk; empty: none
  bool overlap_reductions = false;
  bool group_transfers = false;
  int receive_buffers = 0;  ///< > 0: hoist receives with that many buffers
};
/// All passes, on prologue, a few bodies and epilogue; folded again if the result repeats, unrolled otherwise.
[[nodiscard]] Schedule lower(const Schedule& schedule, const LoweringOptions& options = {});

}  // namespace pipedream
