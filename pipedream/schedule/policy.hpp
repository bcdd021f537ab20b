#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Which weights a forward reads, and with it its backward.
enum class VersionPolicy {
  Flush,         ///< the newest; no step lies between a forward and its backward
  Stash,         ///< the newest at the forward; the backward reads the same (PipeDream)
  VerticalSync,  ///< the newest of the first chunk when a micro-batch enters; all chunks read that one
  DoubleBuffer,  ///< "2bw": the one before the previous mini-batch's step; two buffers (PipeDream-2BW)
  Predict,       ///< the newest, moved ahead by the steps until the backward; the backward reads the same (PipeOptim, consistent mode)
  None,          ///< whatever is there: forward and backward may read different weights
};

[[nodiscard]] std::string_view name_of(VersionPolicy policy);
/// @throws UsageError listing the names
[[nodiscard]] VersionPolicy parse_policy(std::string_view name);

/// Policy of every chunk. Schedule::policy is one name, or names separated by '/' for equal parts of the chunks: "2bw/flush".
/// @throws UsageError for unknown names and a wrong number of them
[[nodiscard]] std::vector<VersionPolicy> chunk_policies(const Schedule& schedule);

}  // namespace pipedream
