#pragma once

#include <string>
#include <vector>

namespace pipedream {

/// How a schedule lays its chunks over ranks.
enum class Placement {
  Chain,   ///< one chunk per rank (or set of replicas)
  Loop,    ///< chunk c on position c mod ranks
  Vee,     ///< two chunks per rank: chunk k and chunk 2 ranks - 1 - k
  Mirror,  ///< every chunk twice, on rank k and on rank ranks - 1 - k, for two opposite directions
  Whole,   ///< one chunk on all ranks
};

/// Ranks per chunk. `replicas` per position along the pipe (Chain), or one number for all; ranks are numbered along the pipe, replicas side by
/// side. @throws UsageError if replicas differ where the placement needs them equal
[[nodiscard]] std::vector<std::vector<int>> place_chunks(Placement placement, int chunks_per_rank, const std::vector<int>& replicas);

}  // namespace pipedream
