#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/plan/work_graph.hpp"

namespace pipedream {

/// 0, 1, 2, ...: nodes of a graph lie in a topological order.
[[nodiscard]] std::vector<int> file_order(const WorkGraph& graph);
/// Breadth first from the nodes without sources; also where the nodes do not lie in a topological order.
[[nodiscard]] std::vector<int> breadth_first_order(const WorkGraph& graph);

/// Topological orders of a graph that has too many cuts to look at all of them, each good at something: that of the file, depth first and breadth
/// first from either end, and the one that takes the node next after which the fewest bytes cross. Equal ones once; the first is 0, 1, 2, ...
[[nodiscard]] std::vector<std::vector<int>> topological_orders(const WorkGraph& graph);

/// The order with one random run of nodes moved as far as its neighbours allow: a step of a local search. Same seed, same step.
[[nodiscard]] std::vector<int> moved(const WorkGraph& graph, const std::vector<int>& order, std::uint64_t seed);

}  // namespace pipedream
