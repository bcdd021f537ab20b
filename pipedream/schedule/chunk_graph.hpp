#pragma once

#include <utility>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Who feeds whom among the chunks of a schedule.
struct ChunkGraph {
  std::vector<std::vector<int>> predecessors, successors;  ///< ascending
  std::vector<int> order;                                  ///< topological
};

/// @throws InputError if an edge names a chunk that is not there, is there twice, or the edges form a cycle
[[nodiscard]] ChunkGraph chunk_graph(int num_chunks, const std::vector<std::pair<int, int>>& edges);
[[nodiscard]] inline ChunkGraph chunk_graph(const Schedule& schedule) { return chunk_graph(schedule.num_chunks(), schedule.edges); }

/// The edges of a chain of chunks.
[[nodiscard]] std::vector<std::pair<int, int>> chain_edges(int num_chunks);

/// Per chunk the ranks on the way from it to the end of the pipe, its own included; on the way with most ranks. Of a chain of p single ranks p - k.
/// It is how many micro-batches must be in flight at a chunk before its first gradient can be back (PipeDream, SOSP'19, section 3.2; for branches
/// GraphPipe's in-flight rule with equal micro-batches, spec methods 4.5).
[[nodiscard]] std::vector<int> ranks_downstream(const Schedule& schedule);

/// Position of a micro-batch's slice of a chunk in flat arrays of num_chunks * micro_batches * slices entries.
struct WorkIndex {
  explicit WorkIndex(const Schedule& schedule)
      : micro_batches(static_cast<std::size_t>(schedule.micro_batches)),
        slices(static_cast<std::size_t>(schedule.slices)),
        size(static_cast<std::size_t>(schedule.num_chunks()) * micro_batches * slices) {}
  [[nodiscard]] std::size_t operator()(int chunk, int micro_batch, int slice) const {
    return (static_cast<std::size_t>(chunk) * micro_batches + static_cast<std::size_t>(micro_batch)) * slices + static_cast<std::size_t>(slice);
  }
  std::size_t micro_batches, slices, size;
};

/// By WorkIndex (slice 0): whether a micro-batch of a chunk runs on weights predicted for it, so that its forward and backward read a copy of
/// their own and not the version they name. Empty where the list predicts nothing.
[[nodiscard]] std::vector<char> predicted_work(const Schedule& schedule, const std::vector<Action>& list);
[[nodiscard]] inline bool is_predicted(const std::vector<char>& predicted, const WorkIndex& index, const Action& action) {
  return !predicted.empty() && action.kind <= ActionKind::BackwardWeight && predicted[index(action.chunk, action.micro_batch, 0)] != 0;
}

}  // namespace pipedream
