#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pipedream/graph/profile.hpp"
#include "pipedream/model/model.hpp"

namespace pipedream {

/// Steps the parameters of one layer, leaving `parameters` as they are (the new version goes elsewhere), as a run does.
using LayerUpdate = std::function<void(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients)>;

struct ProfilerOptions {
  int iterations = 10;  ///< measured ones, of each copy and kind
  int warm_up = 2;      ///< iterations before them, not counted
  double seconds = 60;  ///< no further iteration begins after this time, once three were measured
  int copies = 1;       ///< threads that run the model side by side: as many as ranks will share the machine
  int threads = 1;      ///< threads of each copy inside an operator; 0: torch's own choice
  bool split = true;    ///< tell the part of the backward for inputs from that for weights, at the cost of as many iterations again
  std::uint64_t seed = 0;
  Precision precision{};
  std::string device = "cpu";  ///< what the profile calls it
  std::string optimizer;       ///< the one update_ms belongs to
  /// Makes the update of a layer with these parameters; called for every layer of every copy. Empty: updates are not measured.
  std::function<LayerUpdate(const std::vector<at::Tensor>& parameters)> make_update;
  /// Called on the calling thread before every iteration.
  std::function<void(int done, int total)> progress;
};

/// Interquartile range / median of the measured times.
struct LayerSpread {
  double forward = 0;
  double backward = 0;
};

struct Measurement {
  Profile profile;
  std::vector<LayerSpread> spread;  ///< per layer
  double whole_ms = 0;              ///< forward and backward of the whole model, median
  double layers_ms = 0;             ///< sum over the layers of forward_ms and backward_ms; to be compared with whole_ms
  int iterations = 0;               ///< measured, all copies together
};

/// Measures a model layer by layer as a run will see it: whole forwards and backwards, one after another, under the load of `copies` of them.
///
/// Forward: time from the call of a layer to the call of the next (freeing its inputs included). Backward: autograd runs a layer's nodes from the
/// moment when the gradient of its output is complete; a hook on every output takes that time, and a layer lasts until the next one begins.
/// So the layers add up to the whole by construction, and a layer is measured with the caches that its predecessor left. Reported are medians.
/// Part for inputs: the same with parameters that want no gradient; part for weights: the rest. A layer without parameters has only the
/// former, one that passes no gradient on only the latter.
/// Update: one step of every layer's parameters after each backward, in the order of the layers.
/// stashed_bytes: what the layer's forward allocated and is still held when the whole forward is over and outputs were let go after their last
/// reader (as the allocator reports it). An output that nobody needs in the backward does not count; model inputs do not either.
///
/// @param inputs one tensor per model input, one micro-batch
/// @param samples one key per row (ForwardContext::samples)
/// @throws UsageError if the loss is no finite scalar, or for options out of range
[[nodiscard]] Measurement measure(const Model& model, const std::vector<at::Tensor>& inputs, const std::vector<std::uint64_t>& samples,
                                  const ProfilerOptions& options);

}  // namespace pipedream
