#pragma once

#include <memory>
#include <string>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/transport.hpp"

namespace pipedream {

/// One process per rank: tensors travel by point-to-point messages of a c10d process group.
///
/// A message is a header (its key, and dtype and sizes of its tensors) and one payload a tensor, sent from the tensor's memory. Receives of
/// payloads are posted together with the header's once the sizes of an edge are known from its first message; what exceeds them travels after
/// its header. send() returns at once; another thread waits for the transfer and lets go of the tensors.
///
/// @param group    all ranks have joined it
/// @param backend  "gloo" (CPU tensors)
/// @throws UsageError for a backend that this libtorch has not, RankError if the ranks cannot connect within the group's deadline
[[nodiscard]] std::unique_ptr<Transport> make_c10d_transport(std::shared_ptr<ControlGroup> group, const std::string& backend);

}  // namespace pipedream
