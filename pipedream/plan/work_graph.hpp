#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/graph/profile.hpp"

namespace pipedream {

/// Additive costs of a set of layers. Integers, so that sums do not depend on the order in which they were made.
/// Times are picoseconds on a device of speed 1, sizes bytes; all for one micro-batch.
struct Work {
  std::int64_t forward_ps = 0, backward_ps = 0, update_ps = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t stashed_bytes = 0;  ///< kept from forward to backward

  Work& operator+=(const Work& other);
  friend Work operator-(const Work& a, const Work& b) {  // inside the searches' innermost loops
    return {a.forward_ps - b.forward_ps, a.backward_ps - b.backward_ps, a.update_ps - b.update_ps, a.parameter_bytes - b.parameter_bytes,
            a.stashed_bytes - b.stashed_bytes};
  }
  [[nodiscard]] std::int64_t compute_ps() const { return forward_ps + backward_ps; }
  bool operator==(const Work&) const = default;
};

/// One tensor with the node that makes it and those that read it.
struct Flow {
  int source = 0;
  std::vector<int> targets;  ///< ascending, each once, never the source
  std::int64_t bytes = 0;
};

/// What planners work on: nodes that must not be taken apart, in a topological order (every flow goes to higher indices).
///
/// A node is a layer, or the layers that parameter ties force onto one stage together with everything between them.
/// Sources of the original's files whose description starts with "Input" cost nothing and their data reach every stage by the loader: they are no
/// nodes but lie on the first stage. A sink that costs and holds nothing lies with its source.
struct WorkGraph {
  std::vector<std::vector<int>> layers;  ///< per node the layers of the profile, in topological order
  std::vector<int> inputs;               ///< layers that are no nodes
  std::vector<Work> work;
  std::vector<Flow> flows;
  std::vector<std::vector<int>> targets, sources;  ///< neighbours of each node, each once, ascending

  [[nodiscard]] int size() const { return static_cast<int>(work.size()); }
  [[nodiscard]] Work total() const;
};

/// @param join_ties layers that share a parameter must lie on one stage (asynchronous schedules)
/// @throws InputError if the profile is broken or its sums exceed the integers used
[[nodiscard]] WorkGraph make_work_graph(const Profile& profile, bool join_ties);

/// A source of the original's files that stands for the data loader.
[[nodiscard]] bool is_input_layer(const Profile& profile, int layer);

}  // namespace pipedream
