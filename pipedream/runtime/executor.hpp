#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/in_process.hpp"
#include "pipedream/comm/transport.hpp"
#include "pipedream/runtime/micro_batches.hpp"
#include "pipedream/runtime/stage.hpp"
#include "pipedream/runtime/step_groups.hpp"
#include "pipedream/runtime/weight_shards.hpp"
#include "pipedream/schedule/schedule.hpp"
#include "pipedream/sim/trace.hpp"

namespace pipedream {

/// What a rank reports of one micro-batch that it computed the loss of.
struct LossReport {
  int micro_batch = 0;
  double loss = 0;  ///< mean over the rows
  std::int64_t rows = 0;
  std::int64_t right = 0, predictions = 0;  ///< in evaluation
  double end_ms = 0;                        ///< when it was known, since the start of the pass
};

/// What a rank reports of one pass.
struct PassReport {
  std::vector<TimedAction> actions;  ///< in order; times since the start of the pass
  std::vector<LossReport> losses;
  std::vector<AppliedGradient> applied;  ///< by this rank's shard of the weights, where there are shards
  double wall_ms = 0;
  std::int64_t bytes_sent = 0;  ///< to other ranks
};

/// How one pass is to be run. Everything that is a function of the pass, equal on all ranks.
struct PassOptions {
  bool training = true;
  double clip_norm = 0;                                  ///< global gradient norm; 0: no clipping
  std::function<double(int micro_batch)> learning_rate;  ///< of the step that takes this micro-batch's gradient, before the scale of its chunk
  std::function<void(const LossReport&)> on_loss;        ///< called on the rank's own thread
  /// Called on the rank's own thread with the gradients that a step follows, one per parameter, and what each is multiplied by. May be empty.
  std::function<void(const Action& step, const Tensors& gradients, double scale)> on_step;
  std::function<bool()> stop;      ///< asked before each action; true throws
  int bounded_messages = 0;        ///< Transport::send's bound
  WeightShards* shards = nullptr;  ///< where gradients go and weights come from (asynchronous data parallelism), instead of sums and steps
};

/// One rank: walks its action list over its stages. Used by the rank's thread.
class Executor {
 public:
  /// @param stages  this rank's chunks, by chunk @param board  may be null
  Executor(const Model& model, const StageGraph& graph, Transport& transport, std::map<int, Stage*> stages, RankBoard* board);

  /// Runs this rank's part of a pass. @throws whatever a layer throws with the action named, RankError for a loss that is not finite
  PassReport run(const Schedule& schedule, MicroBatchSource& data, const StepGroups& groups, const PassOptions& options);

 private:
  struct Pass;
  void post_receives(Pass& pass, std::size_t index);
  void execute(Pass& pass, const Action& action, std::size_t index);
  void forward(Pass& pass, const Action& action);
  /// Gives input gradients to chunks of the same rank.
  void hand_over_gradients(Pass& pass, int chunk, int micro_batch);
  void after_backward(Pass& pass, const Action& action);
  void backward_and_sum(Pass& pass, const Action& action);
  [[nodiscard]] bool sums_follow(const Pass& pass, std::size_t index);
  void reduce(Pass& pass, const Action& action, std::size_t index);
  void wait(Pass& pass, const Action& action);
  /// Whether a Wait joins this Reduce before the step.
  [[nodiscard]] static bool is_waited_for(const Pass& pass, std::size_t index);
  void step(Pass& pass, const Action& action, std::size_t index);
  /// Whether the version that a step reads is dropped next, so that its slot may be written.
  [[nodiscard]] static bool steps_in_place(const Pass& pass, std::size_t index);
  void reduce_ties(const Pass& pass, int chunk, Tensors& gradients);
  /// A tied parameter counts in the norm once, on the chunk that holds its first place.
  [[nodiscard]] bool counts_elsewhere(const Stage& stage, std::size_t parameter) const;
  double clip_scale(const Pass& pass, const Stage& stage, const Tensors& gradients, double scale);
  void forget_if_done(Pass& pass, int chunk, int micro_batch);
  Stage& stage(int chunk);

  const Model& model_;
  const StageGraph& graph_;
  Transport& transport_;
  std::map<int, Stage*> stages_;
  RankBoard* board_;
};

}  // namespace pipedream
