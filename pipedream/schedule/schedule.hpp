#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/schedule/action.hpp"

namespace pipedream {

/// What one rank does: the prologue once, the body `Schedule::repeats` times, the epilogue once.
struct RankProgram {
  std::vector<Action> prologue, body, epilogue;
  bool operator==(const RankProgram&) const = default;
};

/// The action lists of all ranks for one pass over `micro_batches` micro-batches, after which the pipeline is empty.
///
/// A schedule that never flushes stays small because its steady state is written once: in the k-th repetition (from 0) every action of
/// the body means micro-batch + k * body_micro_batches and version + k * body_versions; the epilogue's numbers are absolute.
/// A flushing schedule is a body of one mini-batch, and an epilogue for the last, smaller mini-batch if there is one.
struct Schedule {
  std::string name;                           ///< "1f1b-async"
  std::string policy;                         ///< of weight versions: "stash", "flush", ...
  std::vector<std::vector<int>> chunk_ranks;  ///< per chunk the ranks of its replicas; micro-batch i runs on entry i mod replicas
  std::vector<std::pair<int, int>> edges;     ///< data flow between chunks (source, target), ascending; a chain is the usual case
  std::vector<RankProgram> ranks;
  int micro_batches = 0;       ///< of the whole pass
  int step_micro_batches = 1;  ///< per optimizer step (mini-batch); the last step may have fewer
  int slices = 1;              ///< per micro-batch
  int repeats = 0;
  int body_micro_batches = 0;
  int body_versions = 0;
  std::vector<int> chunk_body_versions = {};  ///< per chunk, where chunks step at different rates (unequal replicas); else empty

  [[nodiscard]] int num_ranks() const { return static_cast<int>(ranks.size()); }
  [[nodiscard]] int num_chunks() const { return static_cast<int>(chunk_ranks.size()); }
  /// The rank that runs a chunk of a micro-batch.
  [[nodiscard]] int rank_of(int chunk, int micro_batch) const {
    const auto& replicas = chunk_ranks[static_cast<std::size_t>(chunk)];
    return replicas[static_cast<std::size_t>(micro_batch) % replicas.size()];
  }
  /// Steps of a chunk in one repetition of the body.
  [[nodiscard]] int versions_per_body(int chunk) const {
    return chunk_body_versions.empty() ? body_versions : chunk_body_versions[static_cast<std::size_t>(chunk)];
  }
  /// The action as it is meant in repetition k of the body.
  [[nodiscard]] Action shifted(Action action, int k) const {
    action.micro_batch += k * body_micro_batches;
    if (action.version != Action::kNone) action.version += k * versions_per_body(action.chunk);
    return action;
  }
  bool operator==(const Schedule&) const = default;
};

/// Calls visit(action) for every action of a rank in order, the body unrolled.
template <typename Visit>
void for_each_action(const Schedule& schedule, int rank, Visit&& visit) {
  const RankProgram& program = schedule.ranks[static_cast<std::size_t>(rank)];
  for (const Action& action : program.prologue) visit(action);
  for (int k = 0; k < schedule.repeats; ++k)
    for (const Action& action : program.body) visit(schedule.shifted(action, k));
  for (const Action& action : program.epilogue) visit(action);
}

using ActionLists = std::vector<std::vector<Action>>;  ///< per rank

/// The same schedule with everything in the prologue.
[[nodiscard]] Schedule unrolled(const Schedule& schedule);

/// Per rank all its actions in order.
[[nodiscard]] ActionLists action_lists(const Schedule& schedule);

/// The same schedule for fewer micro-batches: at most `repeats` repetitions of the body. What holds for prologue, two bodies and epilogue holds
/// for any number of bodies, so checks look at this one.
[[nodiscard]] Schedule truncated(const Schedule& schedule, int repeats);

/// Number of actions, the body counted `repeats` times.
[[nodiscard]] std::int64_t num_actions(const Schedule& schedule);

/// Whether replicas step without waiting for each other (asp). Their lists are those of replicas that step together, a micro-batch each; a Reduce
/// hands a gradient over and a Step takes the newest weights that have come back, so versions count what a rank has taken.
[[nodiscard]] bool replicas_step_alone(const Schedule& schedule);

/// Micro-batches that one optimizer step of a chunk takes: step_micro_batches; in 1f1b-async and asp with step_micro_batches = 1 one per replica.
/// The last step of a pass may take fewer.
[[nodiscard]] int micro_batches_per_step(const Schedule& schedule, int chunk);

/// Optimizer steps of a chunk in the whole pass.
[[nodiscard]] int num_steps(const Schedule& schedule, int chunk);

/// The chunks a rank holds, ascending, and whether a rank holds a chunk.
[[nodiscard]] std::vector<int> chunks_of(const Schedule& schedule, int rank);

/// Micro-batches (slices, where sequences are sliced) between forward and end of the backward (of a split backward its weight part) at the
/// peak, per rank over its chunks, and weight versions at the peak, per chunk. A version counts while a forward or backward will still read it;
/// a step may write in place if nothing but itself still reads the version it starts from. With stashing and w warm-up forwards it is w + 1.
struct Occupancy {
  std::vector<int> in_flight;  ///< per rank
  std::vector<int> versions;   ///< per chunk; the version that a step is writing counts
};
[[nodiscard]] Occupancy occupancy(const Schedule& schedule);

/// Slots a rank needs to hold the versions of a chunk: Occupancy::versions of that chunk.
[[nodiscard]] int versions_needed(const Schedule& schedule, int chunk);

/// Prints one line of facts and the grid: a row per rank, its actions in order, cut after some 24 columns.
std::ostream& operator<<(std::ostream& out, const Schedule& schedule);

/// The grid alone: a row per rank, actions in order from column `first`, at most `columns` of them; the action (mark_rank, mark_index) of the
/// unrolled list stands between > and <.
[[nodiscard]] std::string grid_text(const ActionLists& lists, int first, int columns, int mark_rank = -1, int mark_index = -1);

}  // namespace pipedream
