#include "pipedream/runtime/verify.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "pipedream/core/error.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/runtime/pass_plan.hpp"

namespace pipedream {
namespace {

/// One parameter with every version that it has had.
struct History {
  std::string name;
  int chunk = 0;
  at::Tensor live;
  std::vector<at::Tensor> versions;
  at::Tensor gradient;  // summed since the last step
};

class Rework {
 public:
  Rework(const Model& model, const RunPlan& run, const TrainOptions& options)
      : model_(model), run_(run), options_(options), layers_(create_layers(model, options.seed)) {
    std::map<int, int> chunk_of_node;
    for (std::size_t chunk = 0; chunk < run.graph.chunks.size(); ++chunk)
      for (const int node : run.graph.chunks[chunk].nodes) chunk_of_node[node] = static_cast<int>(chunk);
    for (const auto& [name, tensor] : distinct_parameters(model, layers_)) {
      int chunk = 0;
      std::size_t longest = 0;  // names may contain dots: the layer is the longest name that fits
      for (std::size_t node = 0; node < model.nodes.size(); ++node) {
        const std::string& layer = model.nodes[node].name;
        if (layer.size() < longest || !name.starts_with(layer + ".")) continue;
        longest = layer.size();
        chunk = chunk_of_node[static_cast<int>(node)];
      }
      histories_.push_back({name, chunk, tensor, {tensor.detach().clone()}, {}});
    }
    for (std::size_t chunk = 0; chunk < run.graph.chunks.size(); ++chunk) optimizers_.push_back(make_optimizer(options.optimizer));
    steps_.assign(run.graph.chunks.size(), 0);
  }

  void pass(const PassPlan& pass, MicroBatchSource& data) {
    const Schedule& schedule = *pass.schedule;
    if (replicas_step_alone(schedule))
      throw UsageError("asynchronous data parallelism has no order of steps that could be worked out again", "leave out --verify");
    std::map<std::pair<int, int>, int> version_of;  // (chunk, micro-batch)
    for (int rank = 0; rank < schedule.num_ranks(); ++rank)
      for_each_action(schedule, rank, [&](const Action& action) {
        if (action.kind == ActionKind::Predict || action.slice != 0)
          throw UsageError("a schedule that predicts weights or slices sequences cannot be verified yet", "leave out --verify");
        if (action.kind == ActionKind::Forward) version_of[{action.chunk, action.micro_batch}] = action.version;
      });
    const std::vector<std::int64_t> base = steps_;
    for (int i = 0; i < schedule.micro_batches; ++i) {
      run_micro_batch(pass, data, i, [&](int chunk) { return base[static_cast<std::size_t>(chunk)] + version_of.at({chunk, i}); });
      std::vector<int> stepping;
      for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
        const bool last = i + 1 == schedule.micro_batches;
        if (last || pass.groups->step_of(chunk, i + 1) != pass.groups->step_of(chunk, i)) stepping.push_back(chunk);
      }
      if (!stepping.empty()) clip();
      for (const int chunk : stepping) step(pass, chunk, i);
    }
  }

  [[nodiscard]] Reworked take() {
    Reworked result;
    result.losses = std::move(losses_);
    for (auto& history : histories_) result.weights.push_back({history.name, history.versions.back()});
    result.gradients = std::move(gradients_);
    return result;
  }

 private:
  template <typename VersionOf>
  void run_micro_batch(const PassPlan& pass, MicroBatchSource& data, int micro_batch, const VersionOf& version_of) {
    {
      const c10::NoGradGuard no_grad;
      for (auto& history : histories_) history.live.copy_(history.versions.at(static_cast<std::size_t>(version_of(history.chunk))));
    }
    MicroBatchData batch = data.get(micro_batch, true);
    const ForwardContext context{true, options_.seed, &batch.samples, true, options_.precision};
    const ModelOutputs outputs = pipedream::run(model_, layers_, batch.inputs, context);
    losses_.push_back(outputs.loss.item<double>());
    const double scale = pass.groups->loss_scale(micro_batch);
    outputs.loss.backward(at::full_like(outputs.loss, scale));
    const c10::NoGradGuard no_grad;
    for (auto& history : histories_) {
      at::Tensor& gradient = history.live.mutable_grad();
      if (!gradient.defined()) continue;
      if (const double correction = pass.groups->correction(history.chunk, micro_batch); correction != 1) gradient.mul_(correction);
      if (history.gradient.defined()) history.gradient.add_(gradient);
      else history.gradient = gradient;
      gradient.reset();
    }
  }

  /// Clips the global norm; a schedule that flushes steps all stages after one micro-batch.
  void clip() {
    if (options_.clip_norm <= 0) return;
    double squares = 0;
    for (const auto& history : histories_)
      if (history.gradient.defined()) squares += std::pow(history.gradient.norm(2, at::kDouble).item<double>(), 2);
    const double norm = std::sqrt(squares);
    if (norm <= options_.clip_norm) return;
    for (auto& history : histories_)
      if (history.gradient.defined()) history.gradient.mul_(options_.clip_norm / (norm + 1e-6));
  }

  void step(const PassPlan& pass, int chunk, int micro_batch) {
    std::vector<at::Tensor> source, target, gradients;
    for (auto& history : histories_) {
      if (history.chunk != chunk) continue;
      source.push_back(history.versions.back());
      target.push_back(at::empty_like(source.back()));
      gradients_.push_back({history.name, steps_[static_cast<std::size_t>(chunk)], history.gradient});
      gradients.push_back(std::exchange(history.gradient, {}));
      history.versions.push_back(target.back());
    }
    const auto update = pass.first_update + pass.groups->step_of(run_.loss_chunk, micro_batch);
    const double rate = learning_rate_at(options_.learning_rate_schedule, options_.optimizer.learning_rate, update, run_.total_updates) *
                        static_cast<double>(pass.groups->step_size(chunk)) / pass.groups->step_size(0);
    optimizers_[static_cast<std::size_t>(chunk)]->step(source, target, gradients, rate, 1);
    ++steps_[static_cast<std::size_t>(chunk)];
  }

  const Model& model_;
  const RunPlan& run_;
  const TrainOptions& options_;
  Layers layers_;
  std::vector<History> histories_;
  std::vector<std::unique_ptr<Optimizer>> optimizers_;
  std::vector<std::int64_t> steps_;  // per chunk, of all passes
  std::vector<double> losses_;
  std::vector<StepGradient> gradients_;
};

/// Largest |a - b| / largest |b|; an undefined tensor is zero.
double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto largest = [](const at::Tensor& tensor) { return tensor.defined() ? tensor.abs().max().item<double>() : 0; };
  const double apart = !a.defined() ? largest(b) : !b.defined() ? largest(a) : largest(a - b);
  return apart / (largest(b) + 1e-12);
}

}  // namespace

Reworked rework_on_one_rank(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources) {
  PD_CHECK(options.steps > 0);
  const RunPlan run = plan_run(model, plan, options, sources);
  Rework rework(model, run, options);
  const std::vector<bool> all(model.inputs.size(), true);
  for (const auto& pass : run.passes) {
    if (!pass.training) continue;
    const auto source = sources({pass.epoch, true, all, 1});
    rework.pass(pass, *source);
  }
  return rework.take();
}

VerifyReport compare_with_rework(const TrainResult& run, const Reworked& rework) {
  VerifyReport report;
  report.micro_batches = static_cast<int>(rework.losses.size());
  PD_CHECK(run.losses.size() == rework.losses.size(), "{} losses and {} reworked", run.losses.size(), rework.losses.size());
  for (std::size_t i = 0; i < rework.losses.size(); ++i) {
    const double difference = std::abs(run.losses[i] - rework.losses[i]);
    if (!(difference <= report.loss_difference)) {
      report.loss_difference = difference;
      report.loss_at = static_cast<int>(i);
    }
  }
  std::map<std::pair<std::string, std::int64_t>, at::Tensor> gradients;
  for (const auto& gradient : rework.gradients) gradients[{gradient.name, gradient.step}] = gradient.gradient;
  for (const auto& gradient : run.gradients) {
    const auto found = gradients.find({gradient.name, gradient.step});
    if (found == gradients.end()) continue;  // a further place of a tied weight, or of a stage that stepped more often than the one with the loss
    const double difference = relative_difference(gradient.gradient, found->second);
    if (!(difference <= report.gradient_difference)) {
      report.gradient_difference = difference;
      report.gradient_at = gradient.name;
      report.gradient_step = gradient.step;
    }
  }
  std::map<std::string, at::Tensor> weights;
  for (const auto& weight : rework.weights) weights[weight.name] = weight.tensor;
  for (const auto& weight : run.weights) {
    const auto found = weights.find(weight.name);
    PD_CHECK(found != weights.end(), "no weight {} was reworked", weight.name);
    const double difference = relative_difference(weight.tensor, found->second);
    if (!(difference <= report.weight_difference)) {
      report.weight_difference = difference;
      report.weight_at = weight.name;
    }
  }
  return report;
}

}  // namespace pipedream
