#include "reenactment.hpp"

#include <c10/core/GradMode.h>
#include <torch/optim.h>

#include <map>

#include "pipedream/model/run.hpp"

namespace pipedream::test {
namespace {

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(const OptimizerOptions& o, std::vector<at::Tensor> parameters) {
  if (o.name == "sgd")
    return std::make_unique<torch::optim::SGD>(
        std::move(parameters), torch::optim::SGDOptions(o.learning_rate).momentum(o.momentum).nesterov(o.nesterov).weight_decay(o.weight_decay));
  if (o.name == "adam")
    return std::make_unique<torch::optim::Adam>(
        std::move(parameters), torch::optim::AdamOptions(o.learning_rate).betas({o.beta1, o.beta2}).eps(o.epsilon).weight_decay(o.weight_decay));
  return std::make_unique<torch::optim::AdamW>(
      std::move(parameters), torch::optim::AdamWOptions(o.learning_rate).betas({o.beta1, o.beta2}).eps(o.epsilon).weight_decay(o.weight_decay));
}

}  // namespace

ReenactmentResult reenact(const Model& model, const Reenactment& rule, const TrainOptions& options, MicroBatchSource& data) {
  // `live` holds the newest weights and is stepped by torch; `work` is set to whatever versions a micro-batch reads.
  const Layers live = create_layers(model, options.seed);
  const Layers work = another_version(model, live);
  const auto newest = distinct_parameters(model, live), used = distinct_parameters(model, work);
  std::map<std::string, int> stage_of_layer;
  for (std::size_t k = 0; k < rule.stages.size(); ++k)
    for (const auto& layer : rule.stages[k]) stage_of_layer[layer] = static_cast<int>(k);
  std::vector<int> stage_of;  // of each distinct parameter; a tied one belongs to its first layer's stage
  for (std::size_t i = 0; i < model.nodes.size(); ++i)
    for (std::size_t p = 0; p < live[i]->parameters().size(); ++p) {
      const at::Tensor tensor = live[i]->parameters()[p].tensor;
      if (stage_of.size() < newest.size() && tensor.is_same(newest[stage_of.size()].tensor))
        stage_of.push_back(stage_of_layer.at(model.nodes[i].name));
    }
  std::vector<std::vector<at::Tensor>> history(newest.size());  // per parameter: every version
  std::vector<at::Tensor> tensors;
  for (std::size_t i = 0; i < newest.size(); ++i) {
    history[i].push_back(newest[i].tensor.detach().clone());
    tensors.push_back(newest[i].tensor);
  }
  const auto optimizer = torch_optimizer(options.optimizer, tensors);
  ReenactmentResult result;
  const int n = data.num_micro_batches();
  for (int first = 0; first < n; first += rule.step_size) {
    const int end = std::min(n, first + rule.step_size);
    std::int64_t rows = 0;
    for (int i = first; i < end; ++i) rows += data.rows(i);
    std::vector<at::Tensor> sums(newest.size());
    for (int i = first; i < end; ++i) {
      {
        const c10::NoGradGuard no_grad;
        for (std::size_t p = 0; p < used.size(); ++p) used[p].tensor.copy_(history[p].at(static_cast<std::size_t>(rule.version_of(stage_of[p], i))));
      }
      MicroBatchData batch = data.get(i, true);
      const ForwardContext context{true, options.seed, &batch.samples, true};
      const ModelOutputs outputs = run(model, work, batch.inputs, context);
      result.losses.push_back(outputs.loss.item<double>());
      (outputs.loss * (static_cast<double>(data.rows(i)) / static_cast<double>(rows))).backward();
      for (std::size_t p = 0; p < used.size(); ++p) {
        auto& gradient = used[p].tensor.mutable_grad();
        if (gradient.defined()) sums[p] = sums[p].defined() ? sums[p] + gradient : gradient.clone();
        gradient.reset();
      }
    }
    for (std::size_t p = 0; p < newest.size(); ++p) tensors[p].mutable_grad() = sums[p];
    optimizer->step();
    for (std::size_t p = 0; p < newest.size(); ++p) history[p].push_back(tensors[p].detach().clone());
  }
  for (std::size_t p = 0; p < newest.size(); ++p) result.weights.push_back({newest[p].name, history[p].back()});
  return result;
}

}  // namespace pipedream::test
