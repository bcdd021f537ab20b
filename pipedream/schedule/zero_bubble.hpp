#pragma once

#include "pipedream/schedule/pipes.hpp"

namespace pipedream {

/// The closed orders of 2401.10241 as spec methods 4.7.2 gives them, on a chain. H1 holds as many activations as 1F1B (its first rank's, on every
/// rank), H2 up to 2 p - 1 and has no bubble where forward and both parts of the backward take the same time.
[[nodiscard]] ActionLists zero_bubble_h1_lists(const Pipes& pipes, int micro_batches);
[[nodiscard]] ActionLists zero_bubble_h2_lists(const Pipes& pipes, int micro_batches);

}  // namespace pipedream
