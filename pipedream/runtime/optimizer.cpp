#include "pipedream/runtime/optimizer.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/runtime/optimizer_kernels.hpp"

namespace pipedream {
namespace {

bool has_fused_pass(const at::Tensor& source, const at::Tensor& target, const at::Tensor& gradient) {
  return source.device().is_cpu() && source.scalar_type() == at::kFloat && gradient.scalar_type() == at::kFloat && source.is_contiguous() &&
         target.is_contiguous();
}

/// The storage of a leaf parameter, outside autograd: a slot that no graph holds is written directly.
at::Tensor raw(const at::Tensor& tensor) { return tensor.detach(); }

std::vector<at::Tensor> zeros_like(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> result;
  for (const auto& tensor : tensors) result.push_back(at::zeros_like(raw(tensor), at::MemoryFormat::Contiguous));
  return result;
}

class Sgd final : public Optimizer {
 public:
  using Optimizer::Optimizer;

  void step(const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target, const std::vector<at::Tensor>& gradients,
            double learning_rate, double scale) override {
    const c10::NoGradGuard no_grad;
    const bool first = steps_++ == 0;
    const bool with_momentum = options_.momentum != 0;
    if (with_momentum && momentum_.empty()) momentum_ = zeros_like(source);
    for (std::size_t i = 0; i < source.size(); ++i) {
      at::Tensor from = raw(source[i]), to = raw(target[i]);
      if (!gradients[i].defined()) {
        if (!to.is_same(from) && to.data_ptr() != from.data_ptr()) to.copy_(from);
        continue;
      }
      if (has_fused_pass(from, to, gradients[i])) {
        const at::Tensor gradient = gradients[i].contiguous();
        const SgdNumbers numbers{static_cast<float>(learning_rate),
                                 static_cast<float>(options_.momentum),
                                 static_cast<float>(options_.weight_decay),
                                 static_cast<float>(scale),
                                 options_.nesterov,
                                 first};
        sgd_pass(from.data_ptr<float>(), to.data_ptr<float>(), gradient.data_ptr<float>(), with_momentum ? momentum_[i].data_ptr<float>() : nullptr,
                 from.numel(), numbers);
        continue;
      }
      at::Tensor direction = gradients[i].mul(scale).add(from, options_.weight_decay);
      if (with_momentum) {
        momentum_[i].mul_(first ? 0 : options_.momentum).add_(direction);
        direction = options_.nesterov ? direction.add(momentum_[i], options_.momentum) : momentum_[i];
      }
      to.copy_(from.sub(direction, learning_rate));
    }
  }

  [[nodiscard]] std::vector<State> state() const override {
    if (momentum_.empty()) return {};
    return {{"momentum", momentum_}};
  }
  void set_state(std::vector<State> state, std::int64_t steps) override {
    steps_ = steps;
    for (auto& entry : state)
      if (entry.name == "momentum") momentum_ = std::move(entry.tensors);
  }

 private:
  std::vector<at::Tensor> momentum_;
};

class Adam final : public Optimizer {
 public:
  Adam(const OptimizerOptions& options, bool decoupled) : Optimizer(options), decoupled_(decoupled) {}

  void step(const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target, const std::vector<at::Tensor>& gradients,
            double learning_rate, double scale) override {
    const c10::NoGradGuard no_grad;
    ++steps_;
    if (first_.empty()) {
      first_ = zeros_like(source);
      second_ = zeros_like(source);
    }
    const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps_));
    const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps_));
    const double coupled = decoupled_ ? 0 : options_.weight_decay, keep = decoupled_ ? 1 - learning_rate * options_.weight_decay : 1;
    for (std::size_t i = 0; i < source.size(); ++i) {
      at::Tensor from = raw(source[i]), to = raw(target[i]);
      if (!gradients[i].defined()) {
        if (to.data_ptr() != from.data_ptr()) to.copy_(from);
        continue;
      }
      if (has_fused_pass(from, to, gradients[i])) {
        const at::Tensor gradient = gradients[i].contiguous();
        const AdamNumbers numbers{static_cast<float>(learning_rate / correction1),
                                  static_cast<float>(options_.beta1),
                                  static_cast<float>(options_.beta2),
                                  static_cast<float>(options_.epsilon),
                                  static_cast<float>(1 / std::sqrt(correction2)),
                                  static_cast<float>(coupled),
                                  static_cast<float>(keep),
                                  static_cast<float>(scale)};
        adam_pass(from.data_ptr<float>(), to.data_ptr<float>(), gradient.data_ptr<float>(), first_[i].data_ptr<float>(), second_[i].data_ptr<float>(),
                  from.numel(), numbers);
        continue;
      }
      const at::Tensor gradient = gradients[i].mul(scale).add(from, coupled);
      first_[i].mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
      second_[i].mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
      const at::Tensor root = second_[i].sqrt().div_(std::sqrt(correction2)).add_(options_.epsilon);
      to.copy_(from.mul(keep).addcdiv(first_[i], root, -learning_rate / correction1));
    }
  }

  [[nodiscard]] std::vector<State> state() const override {
    if (first_.empty()) return {};
    return {{"first_moment", first_}, {"second_moment", second_}};
  }
  void set_state(std::vector<State> state, std::int64_t steps) override {
    steps_ = steps;
    for (auto& entry : state) {
      if (entry.name == "first_moment") first_ = std::move(entry.tensors);
      if (entry.name == "second_moment") second_ = std::move(entry.tensors);
    }
  }

 private:
  bool decoupled_;
  std::vector<at::Tensor> first_, second_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> list_optimizers() {
  return {{"sgd", "stochastic gradient descent; --momentum, --nesterov, --weight-decay"},
          {"adam", "Adam; weight decay is added to the gradient"},
          {"adamw", "Adam with decoupled weight decay"}};
}

void validate(const OptimizerOptions& options) {
  if (options.name != "sgd" && options.name != "adam" && options.name != "adamw")
    throw UsageError(fmt::format("unknown optimizer '{}'", options.name), "choose sgd, adam or adamw");
  const auto in = [](double value, double low, double high, const char* what) {
    if (!(value >= low && value < high)) throw UsageError(fmt::format("{} is {}, it must be at least {} and below {}", what, value, low, high));
  };
  in(options.learning_rate, 0, 1e6, "--lr");
  in(options.momentum, 0, 1, "--momentum");
  in(options.weight_decay, 0, 1e6, "--weight-decay");
  in(options.beta1, 0, 1, "beta1");
  in(options.beta2, 0, 1, "beta2");
  if (options.nesterov && options.momentum == 0) throw UsageError("--nesterov needs a momentum", "add --momentum 0.9");
}

double optimizer_state_factor(const OptimizerOptions& options) {
  if (options.name == "sgd") return options.momentum == 0 ? 0 : 1;
  return 2;
}

UpdateStep make_update_step(const OptimizerOptions& options, const std::vector<at::Tensor>& parameters) {
  return
      [optimizer = std::shared_ptr<Optimizer>(make_optimizer(options)), target = zeros_like(parameters), rate = options.learning_rate](
          const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& gradients) { optimizer->step(source, target, gradients, rate, 1); };
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options) {
  validate(options);
  if (options.name == "sgd") return std::make_unique<Sgd>(options);
  return std::make_unique<Adam>(options, options.name == "adamw");
}

}  // namespace pipedream
