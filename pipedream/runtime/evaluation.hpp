#pragma once

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Forward of `micro_batches` micro-batches through the same chunks on the same ranks as `training`; no versions, no steps.
[[nodiscard]] Schedule evaluation_schedule(const Schedule& training, int micro_batches);

}  // namespace pipedream
