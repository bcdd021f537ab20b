#pragma once

#include <optional>
#include <vector>

#include "pipedream/plan/original_states.hpp"

namespace pipedream {

/// One level of machines as the original's optimizer sees it.
struct OriginalLevel {
  int machines = 1;
  double bandwidth = 1e9;  ///< bytes/s
};

struct OriginalOptions {
  std::vector<OriginalLevel> levels;  ///< lowest first
  std::optional<double> compression;  ///< absent: transfers are free
  bool printed_formula = false;       ///< the formula of the SOSP'19 paper instead of the code's
  bool straight = false, fewer_machines = false;
  double memory_bytes = 0;  ///< 0: no limit; otherwise the original's memory rule
};

/// States `first` .. `last` on so many replicas in each of the groups of devices above.
struct OriginalStage {
  int first = 0, last = 0;
  std::vector<int> devices;
  double stage_time_s = 0;  ///< compute and synchronisation per mini-batch, divided by the replicas of its own level
};

struct OriginalPlan {
  double time_s = 0;
  std::vector<OriginalStage> stages;
  std::int64_t cells = 0;  ///< transitions looked at
};

/// Walks the search space of the original's dynamic program, level by level, with its costs. Source of the recurrence: pipedream.md section 1.4,
/// after msr-fiddle/pipedream, optimizer/optimizer_graph_hierarchical.py (compute_partitioning).
/// @return nothing if no plan keeps the limits
[[nodiscard]] std::optional<OriginalPlan> search_original(const OriginalStates& states, const OriginalOptions& options);

/// Data parallelism over all levels as the original prints it.
[[nodiscard]] double original_data_parallel_s(const OriginalStates& states, const OriginalOptions& options);

}  // namespace pipedream
