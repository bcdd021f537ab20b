#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/transport.hpp"
#include "pipedream/runtime/optimizer.hpp"

namespace pipedream {

/// A gradient that a shard has taken in.
struct AppliedGradient {
  std::int32_t micro_batch = 0;   ///< in the order of the data, all passes counted
  std::int64_t read_version = 0;  ///< gradients that the shard had taken in when the weights that this one was worked out with left it
};

/// The weights of an asynchronous data-parallel run (ASP): a parameter server, spread over the replicas.
///
/// Rank s of R keeps shard s: the s-th R-th of all parameters laid end to end, with its optimizer state. A replica runs its micro-batches one
/// after the other on a copy of its own. After a backward it hands every shard its part of the gradient; the shard steps at once, whoever else
/// is under way, and answers with its newest weights. Nobody waits for another replica's compute: the exchange of one micro-batch goes on beside
/// the next, and only when `in_flight` exchanges are under way does a replica wait for the oldest to come back. So a gradient is late by
/// in_flight steps of its own replica, and by as many of the others as they make meanwhile: about in_flight (R - 1) + R - 1 where all are equally
/// fast, without bound where one is slow. What happened is recorded per gradient.
///
/// Used by a rank's compute thread; requests of other ranks are served by threads of its own.
class WeightShards {
 public:
  /// What is held by a thread of this object while it runs: counts its memory. May be empty.
  using ThreadScope = std::function<std::shared_ptr<void>()>;

  /// @param group  ranks of the replicas, ascending, this one among them @param parameters  a replica's copy, equal on all
  WeightShards(Transport& transport, std::vector<int> group, const std::vector<at::Tensor>& parameters, const OptimizerOptions& optimizer,
               int in_flight, ThreadScope thread_scope);
  ~WeightShards();
  WeightShards(const WeightShards&) = delete;
  WeightShards& operator=(const WeightShards&) = delete;

  /// A pass of `micro_batches` begins; micro-batch i is of the i mod R-th replica. @param learning_rate  of a micro-batch's step; any thread
  void begin_pass(int micro_batches, std::function<double(int micro_batch)> learning_rate);
  /// Hands a micro-batch's gradients to all shards. @param gradients  one per parameter, defined
  void push(int micro_batch, const std::vector<at::Tensor>& gradients);
  /// Writes the newest weights that have come back into parameters of the same shapes.
  void read(const std::vector<at::Tensor>& parameters) const;
  /// Waits until all gradients of the pass are in and takes the final weights of all shards: the same on all replicas.
  /// Returns what this rank's shard has taken in, in its order.
  [[nodiscard]] std::vector<AppliedGradient> end_pass();
  /// The run is over because of `reason`: threads that wait for other ranks end.
  void abandon(const std::string& reason);

 private:
  class Layout;
  class Shard;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipedream
