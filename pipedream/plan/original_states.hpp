#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipedream/graph/profile.hpp"

namespace pipedream {

/// The cuts that the original's optimizer looks at: antichains that are reachable from the first source, in topological order.
/// Source: msr-fiddle/pipedream, graph/graph.py (antichain_dag) and optimizer/optimizer_graph_hierarchical.py.
struct OriginalStates {
  std::vector<double> compute_s;         ///< of everything up to the cut, forward and backward
  std::vector<double> parameter_bytes;   ///< same
  std::vector<double> activation_bytes;  ///< same
  std::vector<double> output_bytes;      ///< that cross the cut, as the original counts them
  std::vector<std::vector<int>> before;  ///< states that can come earlier in a plan, ascending
  std::vector<std::vector<int>> layers;  ///< layers of the profile up to the cut, ascending
  std::vector<int> loose_layers;         ///< in no state: inputs that the original takes away
  std::vector<int> trailing_layers;      ///< in no state: sinks that the original takes away

  [[nodiscard]] int size() const { return static_cast<int>(compute_s.size()); }
};

/// @return nothing if there are more than `limit` states
[[nodiscard]] std::optional<OriginalStates> original_states(const Profile& profile, int limit);

/// Merges the chain at the start of every branch into one layer, as the original does for graphs with too many states: times and parameters are
/// added, the output is that of the chain's last layer. Source: msr-fiddle/pipedream, graph/graph.py (compress_branches).
/// @param members if given: per layer of the result the layers it stands for
[[nodiscard]] Profile compress_branches(const Profile& profile, std::vector<std::vector<int>>* members = nullptr);

}  // namespace pipedream
