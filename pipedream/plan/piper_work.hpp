#pragma once

#include <cstdint>
#include <vector>

#include "pipedream/plan/piper_graph.hpp"
#include "pipedream/plan/planner.hpp"

namespace pipedream {

/// What to do otherwise than the file says. Below 0: as the file says.
struct PiperOptions {
  int devices = -1;
  double memory_bytes = -1;
  double bandwidth = -1;  ///< bytes per second
  int micro_batches = -1;
  Recompute recompute = Recompute::Auto;
  bool straight = false;  ///< no replicas
};

/// A way to save memory on one layer: what it takes longer than the fastest variant, and how large it is.
struct PiperChoice {
  int variant = 0;
  std::int64_t extra = 0, a_bytes = 0, b_bytes = 0;
};

/// A layer on one tensor degree, in whole numbers: times in units of 1 / scale of the file's unit.
struct PiperLayerWork {
  bool possible = false;
  int variant = 0;  ///< the fastest
  std::int64_t time = 0, reduce = 0, a_bytes = 0, b_bytes = 0;
  std::vector<PiperChoice> leaner;  ///< the other variants
};

/// The instance in whole numbers, so that sums do not depend on their order and a threshold is proved infeasible exactly. A stage of layers Q on
/// degree t with d replicas takes (time + transfers + reduce (d - 1)) / d.
struct PiperWork {
  int nodes = 0, devices = 1, most_replicas = 1;  ///< most_replicas: of all stages together
  std::int64_t memory_bytes = 0;
  double scale = 1;                                 ///< units of time in one of the file
  std::vector<int> degrees;                         ///< ascending
  std::vector<int> replicas;                        ///< that a stage may have, ascending
  std::vector<std::vector<PiperLayerWork>> layers;  ///< [degree][node]
  std::vector<std::vector<std::int64_t>> in, out;   ///< [degree][edge]: time to receive, to send, forward and backward
  std::int64_t most_time = 0;                       ///< no stage takes longer

  [[nodiscard]] const PiperLayerWork& layer(std::size_t degree, int node) const { return layers[degree][static_cast<std::size_t>(node)]; }
};

/// The graph with what the options say instead. @throws UsageError for options out of range
[[nodiscard]] PiperGraph with_options(PiperGraph graph, const PiperOptions& options);

/// @throws InputError if sums exceed the integers used
[[nodiscard]] PiperWork make_piper_work(const PiperGraph& graph, const PiperOptions& options);

}  // namespace pipedream
