#include "pipedream/schedule/placement.hpp"

#include <algorithm>
#include <numeric>

#include "pipedream/core/error.hpp"

namespace pipedream {

std::vector<std::vector<int>> place_chunks(Placement placement, int chunks_per_rank, const std::vector<int>& replicas) {
  std::vector<std::vector<int>> positions;  // ranks per position along the pipe
  int next = 0;
  for (const int count : replicas) {
    positions.emplace_back();
    for (int i = 0; i < count; ++i) positions.back().push_back(next++);
  }
  if (placement == Placement::Chain) return positions;
  if (placement == Placement::Whole) {
    std::vector<int> all(static_cast<std::size_t>(next));
    std::iota(all.begin(), all.end(), 0);
    return {all};
  }
  if (std::adjacent_find(replicas.begin(), replicas.end(), std::not_equal_to<>()) != replicas.end())
    throw UsageError("this schedule needs the same number of replicas at every place along the pipe", "use 1f1b-async or 1f1b for unequal replicas");
  std::vector<std::vector<int>> chunks;
  const std::size_t p = positions.size();
  switch (placement) {
    case Placement::Loop:
      for (int chunk = 0; chunk < chunks_per_rank; ++chunk) chunks.insert(chunks.end(), positions.begin(), positions.end());
      break;
    case Placement::Vee:
      chunks = positions;
      chunks.insert(chunks.end(), positions.rbegin(), positions.rend());
      break;
    default:
      for (std::size_t k = 0; k < p; ++k) {
        chunks.emplace_back();
        for (std::size_t i = 0; i < positions[k].size(); ++i) {  // micro-batches go down and up in turn
          chunks.back().push_back(positions[k][i]);
          chunks.back().push_back(positions[p - 1 - k][i]);
        }
      }
  }
  return chunks;
}

}  // namespace pipedream
