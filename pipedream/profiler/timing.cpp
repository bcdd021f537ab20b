#include "pipedream/profiler/timing.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <unordered_set>

namespace pipedream {
namespace {

using ProfilerClock = std::chrono::steady_clock;

double since_ms(ProfilerClock::time_point begin) { return std::chrono::duration<double, std::milli>(ProfilerClock::now() - begin).count(); }

// Gives the time since the last mark to the layer that was marked then.
class Stopwatch {
 public:
  explicit Stopwatch(std::size_t layers) : times_(layers, 0.0) {}
  void begin(std::size_t layer) {
    const auto now = ProfilerClock::now();
    settle(now);
    layer_ = layer;
    last_ = now;
    running_ = true;
  }
  std::vector<double> stop() {
    settle(ProfilerClock::now());
    running_ = false;
    return times_;
  }

 private:
  void settle(ProfilerClock::time_point now) {
    if (running_) times_[layer_] += std::chrono::duration<double, std::milli>(now - last_).count();
  }
  std::vector<double> times_;
  std::size_t layer_ = 0;
  ProfilerClock::time_point last_;
  bool running_ = false;
};

void want_gradients(const Layers& layers, bool wanted) {
  for (const auto& layer : layers)
    for (const NamedTensor& parameter : layer->parameters()) parameter.tensor.set_requires_grad(wanted);
}

// Parameters want gradients again however the iteration ends.
struct InputsOnlyGuard {
  const Layers& layers;
  bool active;
  InputsOnlyGuard(const Layers& all, bool is_active) : layers(all), active(is_active) {
    if (active) want_gradients(layers, false);
  }
  ~InputsOnlyGuard() {
    if (active) want_gradients(layers, true);
  }
};

std::vector<double> time_updates(const MeasuredLayers& measured) {
  std::vector<double> times(measured.layers.size(), 0.0);
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (!measured.updates[i]) continue;
    Tensors parameters, gradients;
    for (const NamedTensor& parameter : measured.layers[i]->parameters()) {
      parameters.push_back(parameter.tensor);
      gradients.push_back(parameter.tensor.grad());
    }
    const auto begin = ProfilerClock::now();
    measured.updates[i](parameters, gradients);
    times[i] = since_ms(begin);
  }
  return times;
}

}  // namespace

std::vector<bool> layers_with_gradient(const Model& model, const Layers& layers, const Tensors& inputs, ForwardContext context) {
  context.update_buffers = false;
  std::vector<bool> result(layers.size(), false);
  (void)run_layers(model, layers, inputs, context, {}, [&](std::size_t layer, Tensors& outputs) {
    for (const at::Tensor& output : outputs) result[layer] = result[layer] || output.requires_grad();
  });
  return result;
}

LayerTimes time_layers(const Model& model, const MeasuredLayers& measured, const Tensors& inputs, const ForwardContext& context, BackwardKind kind,
                       const std::vector<bool>& with_gradient) {
  const Layers& layers = measured.layers;
  const InputsOnlyGuard guard(layers, kind == BackwardKind::InputsOnly);
  Stopwatch forward(layers.size()), backward(layers.size());
  LayerTimes times;
  const auto begin = ProfilerClock::now();
  std::unordered_set<const void*> marked;
  const auto mark = [&](std::size_t layer, at::Tensor& output) {
    if (!output.is_floating_point()) return;
    if (!output.requires_grad()) output = output.detach().requires_grad_();
    // A layer may return its input. Two hooks on one tensor would run in the order of the forward, not of the backward.
    if (!marked.insert(output.unsafeGetTensorImpl()).second) output = output.view_as(output);
    output.register_hook([&backward, layer](const at::Tensor&) { backward.begin(layer); });
  };
  at::Tensor loss = run_layers(
      model, layers, inputs, context, [&](std::size_t layer) { forward.begin(layer); },
      [&](std::size_t layer, Tensors& outputs) {
        if (!with_gradient[layer]) return;
        for (at::Tensor& output : outputs) mark(layer, output);
      });
  times.forward = forward.stop();
  loss.backward();
  times.backward = backward.stop();
  times.loss = loss.item<double>();
  times.whole = since_ms(begin);
  if (kind == BackwardKind::Whole) times.update = time_updates(measured);
  for (const auto& layer : layers)
    for (const NamedTensor& parameter : layer->parameters()) parameter.tensor.mutable_grad() = at::Tensor();
  return times;
}

}  // namespace pipedream
