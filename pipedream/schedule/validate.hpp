#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// What a rank holds, for the check of memory; units are the caller's, bytes or activations.
struct MemoryModel {
  std::vector<double> activation;  ///< per chunk: kept from forward to backward, per slice of a micro-batch
  std::vector<double>
      weight_share;  ///< per chunk: the part of `activation` that an input part of a backward leaves until the weight part; empty: all of it
  std::vector<double> version;  ///< per chunk: one version of the weights; empty: 0
  std::vector<double> fixed;    ///< per chunk: gradients and optimizer state; empty: 0
  std::vector<double> limit;    ///< per rank
};

struct ValidationOptions {
  int buffers = 2;                                              ///< messages a configured transport holds per pair of ranks and direction
  bool unbounded = true, configured = true, unbuffered = true;  ///< the buffer assumptions under which no rank may hang
  bool posted_receives = false;    ///< a receive is only posted, the computation that needs it waits; false: it holds its rank, which is stricter
  bool require_transfers = false;  ///< false: a schedule without any transfer is taken as one before add_communication
  bool require_versions = false;   ///< false: a schedule without any version is taken as one before assign_versions
  std::vector<int> max_versions;   ///< per chunk; empty: not limited
  std::optional<MemoryModel> memory;
};

/// The nine groups of what must hold (spec methods 5.4).
enum class RuleGroup { Completeness = 1, LocalOrder, Deadlock, Matching, Versions, Accumulation, Memory, Collectives, Placement };
[[nodiscard]] std::string_view name_of(RuleGroup group);

struct Violation {
  RuleGroup group = RuleGroup::Completeness;
  std::string what;
  int rank = -1;                   ///< of the bad cell, -1 if it is no single cell
  int index = -1;                  ///< in the rank's action list
  std::vector<std::string> cycle;  ///< who waits for whom, where ranks wait for each other
};

/// The first thing wrong with a schedule, nothing if it is sound. Looks at prologue, two bodies (more where the prologue reaches
/// further ahead) and epilogue: what holds there holds for any number of bodies.
[[nodiscard]] std::optional<Violation> find_violation(const Schedule& schedule, const ValidationOptions& options = {});

/// @throws InputError that shows the grid with the bad cell between > and <, and one cycle of who waits for whom if ranks would hang
void validate(const Schedule& schedule, const ValidationOptions& options = {});

}  // namespace pipedream
