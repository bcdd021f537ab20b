#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/model/model.hpp"
#include "pipedream/runtime/optimizer.hpp"
#include "pipedream/runtime/stage_graph.hpp"
#include "pipedream/runtime/version_store.hpp"

namespace pipedream {

struct StageOptions {
  std::uint64_t seed = 0;
  int slots = 1;                ///< weight versions held at once
  bool recompute = false;       ///< keep only the inputs of a forward, run it again before its backward
  bool split_backward = false;  ///< the schedule runs the parts for inputs and for weights apart: layers are cut from each other
  OptimizerOptions optimizer;
  Precision precision{};
};

/// What a micro-batch brings into a chunk.
struct MicroBatchInput {
  std::map<int, Tensors> activations;    ///< by source chunk, in the order of the edge's tensors
  std::vector<at::Tensor> model_inputs;  ///< one per input of the model; undefined where the chunk does not read it
  std::vector<std::uint64_t> samples;    ///< keys of the rows
};

/// One chunk on one rank: its weight versions, its micro-batches in flight, its optimizer. Used by one thread.
class Stage {
 public:
  Stage(const Model& model, const StageGraph& graph, int chunk, const StageOptions& options);
  ~Stage();

  /// Runs a micro-batch forward with a version. With `training` its graph is kept until its backward.
  void forward(int micro_batch, std::int64_t version, MicroBatchInput input, bool training);
  /// What the chunk `target` gets; detached. In the order of the edge's tensors.
  [[nodiscard]] Tensors output_for(int micro_batch, int target) const;
  /// Gradients of those, from `target`; gradients of several targets add up.
  void add_output_gradient(int micro_batch, int target, const Tensors& gradients);
  /// The whole backward. `version` must be the one the forward used. `loss_scale` multiplies the gradient of the loss.
  void backward(int micro_batch, std::int64_t version, double loss_scale);
  /// From now on `call` hears during a backward which parameter's gradient (by its place among the parameters) is complete; empty: nobody does.
  /// Not with a split backward.
  void watch_gradients(std::function<void(std::size_t parameter)> call);
  [[nodiscard]] bool can_watch_gradients() const { return !options_.split_backward; }
  /// Whether gradients of other versions than this one wait for the next step.
  [[nodiscard]] bool has_gradients_beside(std::int64_t version);
  /// The two parts of it (StageOptions::split_backward).
  void backward_input(int micro_batch, std::int64_t version, double loss_scale);
  void backward_weight(int micro_batch, std::int64_t version);
  /// Gradients for the chunk `source`, in the order of the edge's tensors; undefined where there is none.
  [[nodiscard]] Tensors input_gradient_for(int micro_batch, int source) const;
  /// Forgets a micro-batch whose outputs and gradients have all been handed on.
  void forget(int micro_batch);

  /// Gradients of the newest accumulated micro-batches, one per parameter; undefined where there is none. They are taken away.
  [[nodiscard]] Tensors take_gradients();
  /// Optimizer step from `version` to version + 1.
  void step(std::int64_t version, bool in_place, const Tensors& gradients, double learning_rate, double scale);

  /// Makes version + 1 of `version` from values that come from elsewhere, instead of a step: `write` fills its parameters.
  void step_to(std::int64_t version, bool in_place, const std::function<void(const std::vector<at::Tensor>& parameters)>& write);
  /// The newest version, for values from elsewhere. No micro-batch may be in flight.
  [[nodiscard]] const std::vector<at::Tensor>& newest_parameters();

  /// Loss of a micro-batch (mean over its rows), if this chunk has it: valid between forward and forget.
  [[nodiscard]] double loss(int micro_batch) const;
  /// (right predictions, predictions) of a micro-batch, (0, 0) if this chunk does not predict.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> hits(int micro_batch) const;

  [[nodiscard]] VersionStore& versions() { return versions_; }
  [[nodiscard]] const VersionStore& versions() const { return versions_; }
  [[nodiscard]] Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] int chunk() const { return chunk_; }
  [[nodiscard]] const ChunkLayers& layers() const { return graph_.chunks[static_cast<std::size_t>(chunk_)]; }
  [[nodiscard]] int in_flight() const { return static_cast<int>(flights_.size()); }

 private:
  struct Flight;
  struct LayerRun;
  Flight& flight(int micro_batch);
  [[nodiscard]] const Flight& flight(int micro_batch) const;
  void run_layers(Flight& flight, bool with_gradient, bool update_buffers);
  void gather_roots(const Flight& flight, double loss_scale, Tensors& roots, Tensors& gradients) const;

  const Model& model_;
  const StageGraph& graph_;
  int chunk_;
  StageOptions options_;
  VersionStore versions_;
  std::unique_ptr<Optimizer> optimizer_;
  std::map<int, std::unique_ptr<Flight>> flights_;
  std::shared_ptr<std::function<void(std::size_t)>> watcher_;
  std::vector<std::shared_ptr<void>> accumulators_;  // autograd's ends of the parameters of all slots, kept while they are watched
};

}  // namespace pipedream
