#pragma once

#include <string>

#include "pipedream/plan/planner.hpp"

namespace pipedream {

/// A graph of the project dnn-partitioning (msr-fiddle/dnn-partitioning, NeurIPS 2020): operators with latencies on two kinds of devices, colour
/// classes that must stay together, transfer costs per producer, and its own count of devices. Format: docs/file_formats.md.
struct DnnPartitioningGraph {
  Profile profile;  ///< a layer per colour class, named by the id of its first (forward) node; times are those of an accelerator
  int accelerators = 0, cpus = 0;
  std::int64_t memory_bytes = 0;  ///< of an accelerator
};

/// What to do otherwise than the file says. Below 0: as the file says.
struct DnnPartitioningOptions {
  int accelerators = -1, cpus = -1;  ///< that may be used
  std::int64_t memory_bytes = -1;    ///< of an accelerator
};

/// @throws InputError with file and JSON pointer
[[nodiscard]] DnnPartitioningGraph read_dnn_partitioning(const std::string& text, const std::string& file);

/// The text is JSON with the keys of that project.
[[nodiscard]] bool looks_like_dnn_partitioning(const std::string& text);

/// The best contiguous split in that project's own cost model: the largest load of a device, where a device's load is the latency of its nodes plus,
/// for accelerators, the cost of every producer whose output it sends or receives, each once. CPUs neither pay for transfers nor are they full.
/// Contiguous means: the classes' forward parts are cut along ideals.
/// @throws InputError, InfeasibleError
[[nodiscard]] Plan plan_dnn_partitioning(const std::string& text, const std::string& file, const DnnPartitioningOptions& options);

}  // namespace pipedream
