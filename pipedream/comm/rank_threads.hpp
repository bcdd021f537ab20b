#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "pipedream/comm/in_process.hpp"
#include "pipedream/comm/transport.hpp"

namespace pipedream {

/// Runs `body` for the ranks of this process, a thread each: with the place of the rank's transport among `transports`, and the transport. A rank
/// that fails tells all others why, and `board` (may be null), which then says so of it.
/// @throws what failed first, when all have stopped
void run_rank_threads(const std::vector<TransportFactory>& transports, RankBoard* board,
                      const std::function<void(std::size_t place, Transport& transport)>& body);

}  // namespace pipedream
