#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pipedream {

/// Which optimizer, and its numbers. Names and defaults are those of torch.optim.
struct OptimizerOptions {
  std::string name = "sgd";  ///< "sgd", "adam", "adamw"
  double learning_rate = 0.01;
  double momentum = 0;                                ///< sgd
  bool nesterov = false;                              ///< sgd
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;  ///< adam, adamw
  double weight_decay = 0;                            ///< added to the gradient (sgd, adam) or taken from the weights (adamw)
};

/// @throws UsageError for an unknown name (the valid ones are listed) or numbers out of range
void validate(const OptimizerOptions& options);

/// All optimizers as (name, one line), for `pipedream list`.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> list_optimizers();

/// Bytes of optimizer state per byte of parameters: 0 for plain SGD, 1 with momentum, 2 for Adam and AdamW.
[[nodiscard]] double optimizer_state_factor(const OptimizerOptions& options);

/// Steps the parameters of one chunk. Reads weights `source` and writes weights `target`, so that a version that a micro-batch still
/// needs is never overwritten; both may be the same tensors. The state (momentum, moments) is single and follows the newest weights.
///
///   sgd:   g += weight_decay * w;  m = momentum * m + g (m = g at the first step);  d = nesterov ? g + momentum * m : m;  w' = w - lr * d
///   adam:  g += weight_decay * w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
///          w' = w - lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon)
///   adamw: as adam without the first step, from w * (1 - lr * weight_decay)
/// Source: torch.optim.SGD, Adam, AdamW. One pass over memory for each float parameter on a CPU; tensor operations elsewhere.
class Optimizer {
 public:
  explicit Optimizer(const OptimizerOptions& options) : options_(options) {}
  virtual ~Optimizer() = default;

  /// @param gradients  one per parameter; an undefined one leaves its parameter as it is (copied to the target)
  /// @param learning_rate  of this step @param scale  multiplies each gradient first
  virtual void step(const std::vector<at::Tensor>& source, const std::vector<at::Tensor>& target, const std::vector<at::Tensor>& gradients,
                    double learning_rate, double scale) = 0;

  /// Named state per parameter, for checkpoints: ("momentum", one tensor a parameter), ...; empty before the first step.
  struct State {
    std::string name;
    std::vector<at::Tensor> tensors;
  };
  [[nodiscard]] virtual std::vector<State> state() const = 0;
  virtual void set_state(std::vector<State> state, std::int64_t steps) = 0;
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  [[nodiscard]] const OptimizerOptions& options() const { return options_; }

 protected:
  OptimizerOptions options_;
  std::int64_t steps_ = 0;
};

/// A step of these parameters into another slot, as a run does it, for the profiler to time; the parameters stay as they are.
using UpdateStep = std::function<void(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients)>;
[[nodiscard]] UpdateStep make_update_step(const OptimizerOptions& options, const std::vector<at::Tensor>& parameters);

[[nodiscard]] std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);

}  // namespace pipedream
