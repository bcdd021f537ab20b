#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/schedule/action.hpp"

namespace pipedream {

/// An action of a rank with its time, measured or simulated.
struct TimedAction {
  int rank = 0;
  Action action;
  double start_ms = 0, end_ms = 0;
  bool operator==(const TimedAction&) const = default;
};

/// What happened when. The simulator and a run give the same type. File form: Chrome/Perfetto trace JSON.
struct Trace {
  std::string source;  ///< "simulated" or "measured"
  std::string title;
  int num_ranks = 0;
  std::vector<TimedAction> actions;  ///< ascending by (rank, start)
  bool operator==(const Trace&) const = default;
};

/// Chrome trace event JSON: one process per rank, a thread for compute, one for waiting and transfers. Opens in Perfetto.
[[nodiscard]] std::string trace_to_chrome_json(const Trace& trace);
[[nodiscard]] Trace trace_from_chrome_json(const std::string& text, const std::string& file);

}  // namespace pipedream
