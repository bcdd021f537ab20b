#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipedream/model/model.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/executor.hpp"
#include "pipedream/runtime/learning_rate.hpp"
#include "pipedream/runtime/micro_batches.hpp"
#include "pipedream/runtime/optimizer.hpp"
#include "pipedream/sim/trace.hpp"

namespace pipedream {

struct TrainOptions {
  std::uint64_t seed = 0;
  int epochs = 1;
  std::int64_t steps = 0;  ///< optimizer steps of the stage with the loss, all epochs together; 0: whole epochs
  Precision precision{};   ///< of the layers
  OptimizerOptions optimizer;
  LearningRateSchedule learning_rate_schedule;
  double clip_norm = 0;                ///< global gradient norm; flush schedules only; 0: none
  double deadline_ms = 30000;          ///< of every wait
  int threads_per_rank = 0;            ///< for operators; 0: cores / ranks
  int extra_in_flight = 0;             ///< micro-batches beyond the fewest that fill the pipe
  bool overlap_reductions = false;     ///< 1f1b-async: replicas step a forward later, beside which their gradients are summed
  bool evaluate = true;                ///< after each epoch, through the same pipe
  std::int64_t evaluate_every = 0;     ///< steps of the stage with the loss, in an epoch; 0: at its end only. The pipe is emptied for it
  double until_accuracy = 0;           ///< the run ends at the first evaluation that is as good; 0: it does not
  double until_ms = 0;                 ///< it ends at the first evaluation after that much time in training passes; 0: it does not
  bool collect_weights = false;        ///< TrainResult::weights
  bool collect_gradients = false;      ///< TrainResult::gradients; takes the memory of a gradient a step
  std::size_t trace_actions = 200000;  ///< kept per rank, the first ones
};

/// A parameter or buffer at the end.
struct NamedWeight {
  std::string name;  ///< "layer.weight"
  at::Tensor tensor;
};

/// What a step of a parameter followed: the gradient of the mean over the step's rows.
struct StepGradient {
  std::string name;       ///< "layer.weight"
  std::int64_t step = 0;  ///< of its stage, from 0, all passes counted
  at::Tensor gradient;    ///< undefined: zero
};

struct EpochResult {
  int epoch = 0;  ///< from 0
  double train_loss = 0;
  std::optional<double> test_loss, test_accuracy;
  double wall_ms = 0;  ///< of the training pass
  std::int64_t samples = 0;
};

/// What an evaluation found, and what training had taken until then.
struct EvaluationPoint {
  std::int64_t steps = 0, samples = 0;
  double training_ms = 0;                ///< in training passes
  std::int64_t training_bytes_sent = 0;  ///< of all ranks
  double loss = 0;
  std::optional<double> accuracy;
};

struct RankResult {
  int rank = 0;
  std::vector<int> stages;
  double compute_ms = 0, idle_ms = 0, send_wait_ms = 0, receive_wait_ms = 0, reduce_ms = 0;  ///< over all training passes
  double window_compute_ms = 0;  ///< compute per micro-batch of the pipeline, in the window that the period is measured in
  std::int64_t peak_memory_bytes = 0;
  std::int64_t bytes_sent = 0;           ///< to other ranks, evaluation included
  std::int64_t training_bytes_sent = 0;  ///< in training passes
  int versions = 1;
};

/// Steps between the weights that a gradient was worked out with and the step that took it.
struct Staleness {
  double mean = 0;
  std::int64_t most = 0;
};

struct TrainResult {
  std::vector<EpochResult> epochs;
  std::vector<EvaluationPoint> evaluations;
  std::vector<RankResult> ranks;
  std::int64_t steps = 0, samples = 0;
  double samples_per_s = 0;                              ///< over the training passes
  double period_ms = 0;                                  ///< per micro-batch in steady state: see measured_period
  double efficiency = 0;                                 ///< compute of the slowest rank per micro-batch / period
  std::int64_t bytes_sent = 0, training_bytes_sent = 0;  ///< of all ranks
  std::int64_t resident_growth_bytes = 0;                ///< of this process while it trained, code and files left out
  Trace trace;
  std::vector<NamedWeight> weights;                   ///< newest parameters in the order of the model's layers, tied ones once; if collect_weights
  std::vector<StepGradient> gradients;                ///< of every step of every parameter, if collect_gradients
  std::vector<NamedWeight> buffers;                   ///< running statistics and the like, of replica 0
  std::vector<double> losses;                         ///< of each micro-batch of the training passes, in order
  std::vector<std::vector<AppliedGradient>> applied;  ///< asp: per shard of the weights (of a rank) what it took in, in its order
  std::optional<Staleness> staleness;                 ///< of those
};

/// What happens while it runs. on_micro_batch and on_evaluation are called by the rank that has the loss, on_epoch by rank 0; where ranks are
/// threads, one at a time.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  struct Progress {
    int epoch = 0, micro_batch = 0, num_micro_batches = 0;
    std::int64_t update = 0;
    double learning_rate = 0;
    LossReport loss;
  };
  virtual void on_micro_batch(const Progress&) {}
  virtual void on_evaluation(int /*epoch*/, int /*micro_batch*/, int /*num_micro_batches*/) {}
  virtual void on_epoch(const EpochResult&) {}
  /// Rank 0 hears of every evaluation where there are several in an epoch.
  virtual void on_evaluated(const EvaluationPoint&) {}
  /// Rank 0 hears of every micro-batch of a training pass, in order, once the pass is over. `time_ms`: when it was, since the first pass began.
  virtual void on_gathered(const Progress&, double /*time_ms*/) {}
  /// Asked by every rank before each action: true ends the run.
  virtual bool stop() { return false; }
};

/// Runs the ranks of a training run that live in this process, a thread each; all processes call it with equal arguments. `transports`: one a
/// rank of this process, in ascending order. The whole result where rank 0 is, elsewhere only `ranks` with the entry of the first of these ranks.
/// `board` may be null. @throws RankError when a rank fails; all of this process have stopped then
[[nodiscard]] TrainResult train_ranks(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources,
                                      TrainObserver& observer, const std::vector<TransportFactory>& transports, RankBoard* board);

/// Trains a model by a plan, ranks as threads of this process. @throws RankError when a rank fails; all have stopped then
[[nodiscard]] TrainResult train(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources,
                                TrainObserver& observer);

}  // namespace pipedream
