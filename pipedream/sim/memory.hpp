#pragma once

#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// Fills peak activations, versions and bytes, which follow from the order of a rank's list alone.
void add_peaks(const Schedule& schedule, const SimulationOptions& options, std::vector<RankFigures>& ranks);

}  // namespace pipedream
