#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/comm/transport.hpp"

namespace pipedream {

/// What one directed link between two ranks gives, by messages of the transport that training uses.
struct LinkMeasurement {
  int from = 0, to = 0;
  double latency_ms = 0;         ///< half the time of a small message there and back, median
  double bandwidth = 0;          ///< bytes/s, nothing else moving
  double two_way_bandwidth = 0;  ///< the same while as much comes back
  double busy_bandwidth = 0;     ///< the same while every rank sends to the next one; 0 for links that are not between such
};

/// Measures every pair of ranks, one after the other, about `seconds` each; all ranks call it. The whole result on rank 0.
[[nodiscard]] std::vector<LinkMeasurement> measure_links(Transport& transport, double seconds);

}  // namespace pipedream
