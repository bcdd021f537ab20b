#include "pipedream/profiler/profiler.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "pipedream/core/error.hpp"
#include "pipedream/profiler/memory_ledger.hpp"
#include "pipedream/profiler/timing.hpp"

namespace pipedream {
namespace {

struct Quartiles {
  double median = 0;
  double spread = 0;  // interquartile range / median
};

double quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

Quartiles quartiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const double median = quantile(values, 0.5);
  return {median, median > 0 ? (quantile(values, 0.75) - quantile(values, 0.25)) / median : 0};
}

Tensors parameters_of(const Layer& layer) {
  Tensors tensors;
  for (const NamedTensor& parameter : layer.parameters()) tensors.push_back(parameter.tensor);
  return tensors;
}

// The iterations of all copies.
struct Samples {
  std::vector<LayerTimes> whole, inputs_only;
};

// Runs the copies. Copy 0 is the calling thread; a copy that is through goes on unmeasured until all are, so that the load stays the same.
class SideBySide {
 public:
  SideBySide(const Model& model, const Tensors& inputs, const ForwardContext& context, std::vector<bool> with_gradient,
             const ProfilerOptions& options)
      : model_(model),
        inputs_(inputs),
        options_(options),
        context_(context),
        with_gradient_(std::move(with_gradient)),
        unfinished_(options.copies),
        start_(options.copies) {}

  Samples run() {
    // Copies have weights and running statistics of their own. They are made before any thread waits for the others.
    std::vector<MeasuredLayers> copies(static_cast<std::size_t>(options_.copies));
    for (MeasuredLayers& copy : copies) {
      copy.layers = create_layers(model_, options_.seed);
      for (const auto& layer : copy.layers)
        copy.updates.push_back(options_.make_update && !layer->parameters().empty() ? options_.make_update(parameters_of(*layer)) : LayerUpdate());
    }
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < copies.size(); ++i) threads.emplace_back([this, &own = copies[i]] { guarded([&] { run_copy(own, false); }); });
    guarded([&] { run_copy(copies[0], true); });
    threads.clear();  // joins
    if (error_) std::rethrow_exception(error_);
    return std::move(samples_);
  }

 private:
  // An error in one copy ends all of them; none is left waiting for it.
  template <typename Body>
  void guarded(Body body) {
    try {
      body();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void run_copy(const MeasuredLayers& layers, bool reports) {
    if (options_.threads > 0) at::set_num_threads(options_.threads);
    start_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    const int total = options_.warm_up + options_.iterations;
    for (int done = 0; done < total && !failed_; ++done) {
      const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (done >= options_.warm_up + 3 && passed > options_.seconds) break;
      if (reports && options_.progress) options_.progress(done, total);
      iterate(layers, done >= options_.warm_up);
    }
    --unfinished_;
    while (unfinished_ > 0 && !failed_) iterate(layers, false);
  }

  void iterate(const MeasuredLayers& layers, bool counts) {
    for (const BackwardKind kind : {BackwardKind::Whole, BackwardKind::InputsOnly}) {
      if (kind == BackwardKind::InputsOnly && !options_.split) continue;
      LayerTimes times = time_layers(model_, layers, inputs_, context_, kind, with_gradient_);
      if (!std::isfinite(times.loss)) throw UsageError(fmt::format("the loss of model '{}' is {} at its initial weights", model_.name, times.loss));
      if (!counts) continue;
      const std::lock_guard lock(mutex_);
      (kind == BackwardKind::Whole ? samples_.whole : samples_.inputs_only).push_back(std::move(times));
    }
  }

  const Model& model_;
  const Tensors& inputs_;
  const ProfilerOptions& options_;
  ForwardContext context_;
  std::vector<bool> with_gradient_;
  std::atomic<int> unfinished_;
  std::atomic<bool> failed_ = false;
  std::barrier<> start_;
  std::mutex mutex_;  // guards samples_ and error_
  Samples samples_;
  std::exception_ptr error_;
};

std::vector<ProfileEdge> profile_edges(const Model& model) {
  std::vector<ProfileEdge> edges;
  for (std::size_t i = 0; i < model.nodes.size(); ++i)
    for (const InputRef ref : model.nodes[i].inputs) {
      if (ref.is_model_input()) continue;
      const ProfileEdge edge{ref.layer, static_cast<int>(i), ref.output};
      if (std::find(edges.begin(), edges.end(), edge) == edges.end()) edges.push_back(edge);
    }
  return edges;
}

std::vector<ParameterTie> profile_ties(const Model& model, const Layers& layers) {
  std::vector<ParameterTie> ties;
  for (const WeightTie& tie : model.ties) {
    ParameterTie& result = ties.emplace_back();
    for (const WeightTie::Place& place : tie.places) result.layers.push_back(place.layer);
    for (const NamedTensor& parameter : layers[static_cast<std::size_t>(tie.places[0].layer)]->parameters())
      if (parameter.name == tie.places[0].parameter) result.bytes = static_cast<std::int64_t>(parameter.tensor.nbytes());
    std::sort(result.layers.begin(), result.layers.end());
    result.layers.erase(std::unique(result.layers.begin(), result.layers.end()), result.layers.end());
  }
  std::erase_if(ties, [](const ParameterTie& tie) { return tie.layers.size() < 2; });
  return ties;
}

Quartiles over_samples(const std::vector<LayerTimes>& samples, std::vector<double> LayerTimes::*part, std::size_t layer) {
  std::vector<double> values;
  for (const LayerTimes& times : samples) values.push_back((times.*part)[layer]);
  return quartiles(std::move(values));
}

// The part for inputs is measured, the part for weights is the rest.
void split_backward(LayerProfile& layer, const std::vector<LayerTimes>& inputs_only, std::size_t index, bool has_parameters, bool passes_gradient) {
  double inputs = layer.backward_ms;
  if (!passes_gradient) inputs = 0;
  else if (has_parameters) inputs = std::min(layer.backward_ms, over_samples(inputs_only, &LayerTimes::backward, index).median);
  layer.backward_input_ms = inputs;
  layer.backward_weight_ms = layer.backward_ms - inputs;
}

bool reads_gradient(const Model& model, std::size_t layer, const std::vector<bool>& with_gradient) {
  return std::any_of(model.nodes[layer].inputs.begin(), model.nodes[layer].inputs.end(),
                     [&](InputRef ref) { return !ref.is_model_input() && with_gradient[static_cast<std::size_t>(ref.layer)]; });
}

void check_options(const Model& model, const Tensors& inputs, const ProfilerOptions& options) {
  if (options.iterations < 1 || options.warm_up < 0 || options.copies < 1)
    throw UsageError(fmt::format("{} iterations after {} of warm-up in {} copies", options.iterations, options.warm_up, options.copies));
  PD_CHECK(inputs.size() == model.inputs.size(), "{} inputs for model '{}', which has {}", inputs.size(), model.name, model.inputs.size());
}

}  // namespace

Measurement measure(const Model& model, const std::vector<at::Tensor>& inputs, const std::vector<std::uint64_t>& samples,
                    const ProfilerOptions& options) {
  check_options(model, inputs, options);
  const Layers layers = create_layers(model, options.seed);
  ForwardContext context;
  context.seed = options.seed;
  context.samples = &samples;
  context.precision = options.precision;
  const std::vector<LayerMemory> memory = measure_memory(model, layers, inputs, context);
  const std::vector<bool> with_gradient = layers_with_gradient(model, layers, inputs, context);
  const Samples measured = SideBySide(model, inputs, context, with_gradient, options).run();

  Measurement result;
  result.profile = {model.name,
                    options.device,
                    options.make_update ? options.optimizer : "",
                    static_cast<int>(samples.size()),
                    {},
                    profile_edges(model),
                    profile_ties(model, layers)};
  result.iterations = static_cast<int>(measured.whole.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerProfile& layer = result.profile.layers.emplace_back();
    const Quartiles forward = over_samples(measured.whole, &LayerTimes::forward, i),
                    backward = over_samples(measured.whole, &LayerTimes::backward, i);
    layer.name = model.nodes[i].name;
    layer.description = model.nodes[i].description;
    layer.forward_ms = forward.median;
    layer.backward_ms = backward.median;
    layer.output_bytes = memory[i].output_bytes;
    layer.stashed_bytes = memory[i].stashed_bytes;
    layer.parameter_bytes = parameter_bytes(*layers[i]);
    if (options.split) split_backward(layer, measured.inputs_only, i, layer.parameter_bytes > 0, reads_gradient(model, i, with_gradient));
    layer.update_ms = over_samples(measured.whole, &LayerTimes::update, i).median;
    result.spread.push_back({forward.spread, backward.spread});
    result.layers_ms += layer.forward_ms + layer.backward_ms;
  }
  std::vector<double> whole;
  for (const LayerTimes& times : measured.whole) whole.push_back(times.whole);
  result.whole_ms = quartiles(std::move(whole)).median;
  validate(result.profile, "profile of " + model.name);
  return result;
}

}  // namespace pipedream
