#include "replica_reenactment.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>

#include "pipedream/model/run.hpp"

namespace pipedream::test {

ReplicaReenactment reenact_replicas(const Model& model, const Plan& plan, const ReplicaRule& rule, const TrainOptions& options,
                                    MicroBatchSource& data) {
  const Layers layers = create_layers(model, options.seed);
  const auto parameters = distinct_parameters(model, layers);
  std::map<std::string, int> stage_of_layer;
  for (std::size_t k = 0; k < plan.stages.size(); ++k)
    for (const auto& layer : plan.stages[k].layers) stage_of_layer[layer] = static_cast<int>(k);
  std::vector<std::size_t> stage_of;
  std::vector<std::vector<at::Tensor>> history;
  for (const auto& parameter : parameters) {
    stage_of.push_back(static_cast<std::size_t>(stage_of_layer.at(parameter.name.substr(0, parameter.name.rfind('.')))));
    history.push_back({parameter.tensor.detach().clone()});
  }
  std::vector<at::Tensor> sums(parameters.size()), momentum(parameters.size());
  std::vector<std::int64_t> rows(plan.stages.size(), 0);
  ReplicaReenactment result;
  const int n = data.num_micro_batches();
  for (int i = 0; i < n; ++i) {
    {
      const c10::NoGradGuard no_grad;
      for (std::size_t p = 0; p < parameters.size(); ++p)
        parameters[p].tensor.copy_(history[p].at(static_cast<std::size_t>(rule.version_of(static_cast<int>(stage_of[p]), i))));
    }
    MicroBatchData batch = data.get(i, true);
    const ForwardContext context{true, options.seed, &batch.samples, true};
    const ModelOutputs outputs = run(model, layers, batch.inputs, context);
    result.losses.push_back(outputs.loss.item<double>());
    outputs.loss.backward();
    const c10::NoGradGuard no_grad;
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      auto& gradient = const_cast<at::Tensor&>(parameters[p].tensor).mutable_grad();
      const at::Tensor weighted = gradient * static_cast<double>(data.rows(i));
      sums[p] = sums[p].defined() ? sums[p] + weighted : weighted;
      gradient.reset();
    }
    for (std::size_t k = 0; k < plan.stages.size(); ++k) {
      rows[k] += data.rows(i);
      if ((i + 1) % rule.step_size[k] != 0 && i + 1 < n) continue;
      const double rate = options.optimizer.learning_rate * rule.step_size[k] / rule.step_size[0];
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (stage_of[p] != k) continue;
        const at::Tensor& newest = history[p].back();
        const at::Tensor direction = sums[p] / static_cast<double>(rows[k]) + newest * options.optimizer.weight_decay;
        momentum[p] = momentum[p].defined() ? momentum[p] * options.optimizer.momentum + direction : direction;
        history[p].push_back(newest - momentum[p] * rate);
        sums[p] = at::Tensor();
      }
      rows[k] = 0;
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) result.weights.push_back({parameters[p].name, history[p].back()});
  return result;
}

}  // namespace pipedream::test
