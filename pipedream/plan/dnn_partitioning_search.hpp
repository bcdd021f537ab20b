#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pipedream/plan/cut_family.hpp"

namespace pipedream {

/// Devices of the project dnn-partitioning.
struct DnnDevices {
  int accelerators = 0, cpus = 0;
  std::int64_t memory_bytes = 0;  ///< of an accelerator
};

struct DnnStage {
  int low = 0, high = 0;  ///< cuts
  bool on_cpu = false;
};

struct DnnSplit {
  std::vector<DnnStage> stages;  ///< first stage first
  std::int64_t largest_load_ps = 0;
};

/// The split over the cuts whose largest load is smallest, if that is below `below_ps`; exact in one pass. Per cut and count of devices for all later
/// stages the smallest largest load, from the last stage to the first. A stage is looked at only as far as its latency stays below the limit, and
/// what it sends and receives is added up only where the rest of its load could still improve something: the difference of what its two cuts split is
/// a floor for that (planner research notes, section 4.3 B).
/// @param cuts measurement 0: accelerators, 1: CPUs; bytes of flows are picoseconds @param states counts the stages looked at
[[nodiscard]] std::optional<DnnSplit> search_dnn_partitioning(const CutFamily& cuts, const DnnDevices& devices, std::int64_t below_ps,
                                                              std::int64_t& states);

}  // namespace pipedream
