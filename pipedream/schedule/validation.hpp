#pragma once

#include <vector>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/policy.hpp"
#include "pipedream/schedule/validate.hpp"

/// The checks behind validate(), a file each. They run in the order of this list, so each may rely on what the ones before it have shown.
namespace pipedream {

struct Checked {
  const Schedule& schedule;  ///< unrolled
  const ValidationOptions& options;
  ActionLists lists;
  ChunkGraph graph;
  WorkIndex index;
  bool has_transfers = false, has_versions = false, has_drops = false, has_reductions = false;

  [[nodiscard]] Violation violation(RuleGroup group, int rank, int at, std::string what) const { return {group, std::move(what), rank, at, {}}; }
};

using Finding = std::optional<Violation>;

/// Group 9: every action names a chunk of its rank, a micro-batch of its replica, a slice and a chunk at the other end that exist.
[[nodiscard]] Finding check_placement(const Checked& checked);
/// Group 1: one forward, one backward or its two parts, one step and one reduction a period and replica.
[[nodiscard]] Finding check_completeness(const Checked& checked);
/// Groups 2 and 6: order within a rank, and every backward adds to the step of its own period.
[[nodiscard]] Finding check_local_order(const Checked& checked);
/// Group 4: every edge between ranks has one send and one receive; between two ranks they pair up in order.
[[nodiscard]] Finding check_matching(const Checked& checked);
/// Group 8: ranks that share collectives meet them in one order.
[[nodiscard]] Finding check_collectives(const Checked& checked);
/// Group 3: nobody waits for ever, under each of the buffer assumptions asked for.
[[nodiscard]] Finding check_deadlock(const Checked& checked);
/// Group 5: versions exist when read, follow the policy, and are dropped in time.
[[nodiscard]] Finding check_versions(const Checked& checked);
/// Group 7: the memory model's limits hold.
[[nodiscard]] Finding check_memory(const Checked& checked);

}  // namespace pipedream
