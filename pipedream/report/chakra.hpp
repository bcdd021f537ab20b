#pragma once

#include <string>
#include <vector>

#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// Execution traces for ASTRA-sim in MLCommons Chakra's protobuf form (schema of chakra/schema/protobuf/et_def.proto), one file content per rank: a
/// GlobalMetadata message, then a Node per action, each with its length as varint before it. Computations become COMP_NODE with their duration in
/// microseconds, transfers COMM_SEND_NODE and COMM_RECV_NODE with size, peer and tag, reductions COMM_COLL_NODE (all-reduce); the order of a rank's
/// list becomes control dependencies, what an action takes in becomes data dependencies.
[[nodiscard]] std::vector<std::string> chakra_traces(const Schedule& schedule, const SimulationOptions& options);

}  // namespace pipedream
