#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/trace.hpp"

namespace pipedream {

struct Plan;
struct Profile;

/// What a chunk costs, for one whole micro-batch; a slice costs its share. Times in ms.
struct ChunkCosts {
  double forward_ms = 1;
  double backward_input_ms = 1;
  double backward_weight_ms = 1;   ///< a whole backward takes both
  double update_ms = 0;            ///< one optimizer step
  std::int64_t reduce_bytes = 0;   ///< gradients that replicas exchange before a step
  double activation_bytes = 0;     ///< kept from a forward to its backward
  double weight_share_bytes = -1;  ///< the part of it that stays from an input part to its weight part; negative: all
  double version_bytes = 0;        ///< one version of the weights
  double fixed_bytes = 0;          ///< gradients, optimizer state, buffers
  bool operator==(const ChunkCosts&) const = default;
};

/// How transfers are timed. A message occupies its link for bytes / bandwidth and arrives `latency` later; links are first in, first out.
struct LinkModel {
  double latency_ms = 0;
  double bandwidth = 0;            ///< bytes per second of every pair of ranks and direction; 0: infinite
  std::optional<Cluster> cluster;  ///< takes the place of both; rank r is device r; shared levels have one queue per group
};

/// Assumptions: a rank computes one action at a time, in the order of its list; transfers and reductions run beside it and never hold it up; an
/// action waits for its inputs. Not modelled: contention of transfers with computation, switches, retransmission.
struct SimulationOptions {
  std::vector<ChunkCosts> chunks;          ///< one for all, or one per chunk
  std::vector<double> rank_factor;         ///< per rank, times are multiplied by it; empty: 1
  std::vector<double> micro_batch_factor;  ///< per micro-batch, the last entry serves the rest; empty: 1
  std::optional<double> pair_ms;           ///< time of a joined forward and backward; nothing: their sum
  std::vector<double> edge_bytes;          ///< per edge of the schedule, activation and gradient alike, per micro-batch; empty: 0
  LinkModel links;
  double jitter = 0;  ///< every computation takes 1 +- jitter of its time, by `seed`
  std::uint64_t seed = 0;
  bool keep_trace = true;  ///< false: figures only
};

/// Figures of one rank.
struct RankFigures {
  double busy_ms = 0;                                                          ///< computation, optimizer steps included
  double makespan_idle_ms = 0;                                                 ///< makespan - busy
  double span_idle_ms = 0;                                                     ///< idle between its first start and its last end
  double wait_activation_ms = 0, wait_gradient_ms = 0, wait_reduction_ms = 0;  ///< what it was waiting for while idle in its span
  int peak_activations = 0;                                                    ///< micro-batches (slices) between forward and end of the backward
  int peak_versions = 1;                                                       ///< of the chunk that has most
  double peak_memory_bytes = 0;
  bool operator==(const RankFigures&) const = default;
};

struct LinkFigures {
  int from = 0, to = 0;
  std::int64_t messages = 0;
  double bytes = 0, busy_ms = 0;
  bool operator==(const LinkFigures&) const = default;
};

struct SimulationResult {
  double makespan_ms = 0;
  double period_ms = 0;  ///< time per micro-batch in steady state; of flushing schedules time of a mini-batch / its micro-batches
  double bubble = 0;     ///< share of all ranks' time until the makespan in which they compute nothing
  std::vector<RankFigures> ranks;
  std::vector<LinkFigures> links;          ///< that carried something, ascending
  std::vector<TimedAction> critical_path;  ///< computations that determine the makespan, in order of time; empty without a trace
  std::int64_t actions = 0;
  Trace trace;
};

/// Times the actions of a schedule, with or without transfers in it. @throws InputError if they wait for each other; validate() says more
[[nodiscard]] SimulationResult simulate(const Schedule& schedule, const SimulationOptions& options);

/// The options that a plan means: times of its layers on the devices of the cluster, recomputation, bytes of the edges between stages, gradients.
[[nodiscard]] SimulationOptions simulation_options(const Plan& plan, const Profile& profile, const Cluster& cluster);
/// The schedule that a plan means, over the edges between its stages.
[[nodiscard]] Schedule schedule_of(const Plan& plan, const Profile& profile, int micro_batches, int extra_in_flight = 0);
[[nodiscard]] SimulationResult simulate(const Plan& plan, const Profile& profile, const Cluster& cluster, int micro_batches);

/// The value of `pipedream simulate --json` (docs/schedules.md).
[[nodiscard]] std::string simulation_to_json(const SimulationResult& result);

/// Bytes a rank holds over time: (ms, bytes) at every change, from the trace of a simulation.
[[nodiscard]] std::vector<std::pair<double, double>> memory_over_time(const Schedule& schedule, const SimulationOptions& options, const Trace& trace,
                                                                      int rank);

}  // namespace pipedream
