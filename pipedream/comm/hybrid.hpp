#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/transport.hpp"

namespace pipedream {

/// Several ranks in each process, as threads: messages and sums among ranks of one process are handed over in memory, the others go through c10d
/// as in make_c10d_transport. A sum over replicas of several processes goes through c10d among all of them, so that it is added in the same order.
///
/// @param groups   one a rank of this process, all joined
/// @param backend  as for make_c10d_transport
/// @return one factory per entry of `groups`; all must be called, at the same time
[[nodiscard]] std::vector<TransportFactory> make_hybrid_transports(const std::vector<std::shared_ptr<ControlGroup>>& groups,
                                                                   const std::string& backend);

}  // namespace pipedream
