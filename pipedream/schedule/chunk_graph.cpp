#include "pipedream/schedule/chunk_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {

std::vector<std::pair<int, int>> chain_edges(int num_chunks) {
  std::vector<std::pair<int, int>> edges;
  for (int chunk = 0; chunk + 1 < num_chunks; ++chunk) edges.emplace_back(chunk, chunk + 1);
  return edges;
}

ChunkGraph chunk_graph(int num_chunks, const std::vector<std::pair<int, int>>& edges) {
  const auto n = static_cast<std::size_t>(num_chunks);
  ChunkGraph graph{std::vector<std::vector<int>>(n), std::vector<std::vector<int>>(n), {}};
  for (const auto& [source, target] : edges) {
    if (source < 0 || source >= num_chunks || target < 0 || target >= num_chunks || source == target)
      throw InputError("", fmt::format("edge {}>{} does not connect two of the {} chunks", source, target, num_chunks));
    graph.successors[static_cast<std::size_t>(source)].push_back(target);
    graph.predecessors[static_cast<std::size_t>(target)].push_back(source);
  }
  std::vector<std::size_t> missing(n);
  for (std::size_t chunk = 0; chunk < n; ++chunk) {
    for (auto* side : {&graph.successors[chunk], &graph.predecessors[chunk]}) {
      std::sort(side->begin(), side->end());
      if (std::adjacent_find(side->begin(), side->end()) != side->end())
        throw InputError("", fmt::format("an edge of chunk {} is there twice", chunk));
    }
    missing[chunk] = graph.predecessors[chunk].size();
    if (missing[chunk] == 0) graph.order.push_back(static_cast<int>(chunk));
  }
  for (std::size_t next = 0; next < graph.order.size(); ++next)
    for (const int target : graph.successors[static_cast<std::size_t>(graph.order[next])])
      if (--missing[static_cast<std::size_t>(target)] == 0) graph.order.push_back(target);
  if (graph.order.size() != n) throw InputError("", "the edges between chunks form a cycle", "data must flow one way through the chunks");
  return graph;
}

std::vector<int> ranks_downstream(const Schedule& schedule) {
  const ChunkGraph graph = chunk_graph(schedule);
  std::vector<int> ranks(static_cast<std::size_t>(schedule.num_chunks()), 0);
  for (auto chunk = graph.order.rbegin(); chunk != graph.order.rend(); ++chunk) {
    int after = 0;
    for (const int target : graph.successors[static_cast<std::size_t>(*chunk)]) after = std::max(after, ranks[static_cast<std::size_t>(target)]);
    ranks[static_cast<std::size_t>(*chunk)] = after + static_cast<int>(schedule.chunk_ranks[static_cast<std::size_t>(*chunk)].size());
  }
  return ranks;
}

std::vector<char> predicted_work(const Schedule& schedule, const std::vector<Action>& list) {
  std::vector<char> predicted;
  const WorkIndex index(schedule);
  for (const Action& action : list)
    if (action.kind == ActionKind::Predict) {
      if (predicted.empty()) predicted.resize(index.size, 0);
      predicted[index(action.chunk, action.micro_batch, 0)] = 1;
    }
  return predicted;
}

}  // namespace pipedream
