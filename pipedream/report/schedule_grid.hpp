#pragma once

#include <string>

#include "pipedream/sim/trace.hpp"

namespace pipedream {

struct GridOptions {
  int width = 118;     ///< characters a line may take
  bool color = false;  ///< colours by kind, as terminals understand them
};

/// A timeline of computations as text: a row per rank, time to the right in equal slots, as fine as the width and the shortest action allow.
/// A cell shows kind and micro-batch (the chunk too where a rank holds several); dots are idle time.
[[nodiscard]] std::string schedule_grid(const Trace& trace, const GridOptions& options = {});

}  // namespace pipedream
