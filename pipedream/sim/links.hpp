#pragma once

#include <vector>

#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {

/// Books messages on links, first in, first out. Bookings must come in the order of time.
class Links {
 public:
  Links(const LinkModel& model, int ranks);

  struct Booking {
    double start_ms, arrival_ms;
  };
  Booking send(int from, int to, double bytes, double now_ms);

  /// Time of a ring all-reduce of `bytes` over these ranks: 2 steps of bytes / R over the slowest link of the ring (Patarasuk and Yuan, 2009).
  [[nodiscard]] double reduce_ms(const std::vector<int>& ranks, double bytes) const;

  [[nodiscard]] std::vector<LinkFigures> figures() const;

 private:
  struct Link {
    double ms_per_byte = 0, latency_ms = 0, bytes = 0, busy_ms = 0;
    std::int64_t messages = 0;
    int queue = 0;  ///< links of a shared level have one in common
  };
  [[nodiscard]] const Link& link(int from, int to) const { return links_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)]; }

  std::size_t ranks_;
  std::vector<Link> links_;
  std::vector<double> free_ms_;  ///< per queue
};

}  // namespace pipedream
