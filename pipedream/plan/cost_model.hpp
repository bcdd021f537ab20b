#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/plan/in_flight.hpp"
#include "pipedream/plan/work_graph.hpp"

/// What a stage costs, apart from how plans are searched. Formulas with symbols and sources: docs/cost_model.md.
namespace pipedream {

/// Devices that cannot be told apart: same speed, memory and profile.
struct DeviceKind {
  double speed = 1;
  std::int64_t memory_bytes = 0;  ///< 0: not limited
  int times = 0;                  ///< which of the measurements (StageSum::work) its times come from
  double rate = 1;                ///< work of the first measurement done per time of this device, at most: only bounds use it
  bool operator==(const DeviceKind&) const = default;
};

/// Time of an all-reduce of w bytes: ms_per_byte * w + latency_ms.
struct ReduceLine {
  double ms_per_byte = 0, latency_ms = 0;
  bool operator==(const ReduceLine&) const = default;
};

/// All that the devices of a stage contribute to its cost. Stages with equal settings cost the same.
struct StageSetting {
  int replicas = 1;
  std::vector<int> kinds;                          ///< those among the replicas, ascending; the slowest decides
  double in_ms_per_byte = 0, in_latency_ms = 0;    ///< of one replica towards earlier stages
  double out_ms_per_byte = 0, out_latency_ms = 0;  ///< and towards later ones
  std::array<ReduceLine, 2> reduce;                ///< the cheaper of two algorithms is taken
  bool operator==(const StageSetting&) const = default;
};

/// What a set of layers adds up to.
struct StageSum {
  const Work* work = nullptr;  ///< per measurement (DeviceKind::times)
  std::int64_t in_bytes = 0;   ///< tensors shared with earlier stages, each once
  std::int64_t out_bytes = 0;  ///< tensors shared with later stages, each once; those shared with both count as in
};

struct StageTime {
  double forward_ms = 0, backward_ms = 0, update_ms = 0;  ///< as in StagePrediction
  double transfer_ms = 0, reduce_ms = 0;
  double load_ms = 0;  ///< what counts against the bottleneck, see CostModel::period_ms
  double fill_ms = 0;  ///< what adds up over the stages, 0 where the pipeline never flushes
};

enum class CostForm {
  Steady,      ///< never flushes: the slowest stage is the period
  Flush,       ///< one mini-batch fills the pipe, runs, drains
  Sequential,  ///< one micro-batch in flight
};

struct CostModel {
  CostForm form = CostForm::Steady;
  int micro_batches = 1;        ///< per optimizer step
  double transfer_overlap = 1;  ///< share of the shorter of compute and transfer that is hidden
  double reduce_overlap = 1;
  double optimizer_state = 1;   ///< bytes of optimizer state per byte of parameters
  double gradient_bytes = 1;    ///< bytes of gradients per byte of parameters
  bool count_transfers = true;  ///< received tensors and communication buffers count as memory
  std::vector<DeviceKind> kinds;

  [[nodiscard]] StageTime time(const StageSum& sum, const StageSetting& setting, bool recompute) const;
  /// Of one replica at its peak.
  [[nodiscard]] std::int64_t memory_bytes(const StageSum& sum, const StageSetting& setting, const InFlight& in_flight, bool recompute) const;
  /// Smallest memory among the setting's devices, INT64_MAX if not limited.
  [[nodiscard]] std::int64_t memory_limit(const StageSetting& setting) const;
  /// Time per micro-batch from the largest load and the sum of fills.
  [[nodiscard]] double period_ms(double largest_load_ms, double fill_ms) const {
    return form == CostForm::Steady ? largest_load_ms : (largest_load_ms + fill_ms) / micro_batches;
  }
  /// Bytes that cross links per micro-batch because of this stage: what it receives in both directions, and its ring all-reduce.
  [[nodiscard]] double traffic_bytes(const StageSum& sum, const StageSetting& setting) const;
};

/// Bytes of state the optimizer keeps per byte of parameters. @throws UsageError for an unknown optimizer
[[nodiscard]] double optimizer_state_factor(const std::string& optimizer);

}  // namespace pipedream
