#include "pipedream/runtime/evaluation.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace pipedream {

Schedule evaluation_schedule(const Schedule& training, int micro_batches) {
  Schedule schedule;
  schedule.name = "evaluation";
  schedule.chunk_ranks = training.chunk_ranks;
  schedule.edges = training.edges;
  schedule.micro_batches = micro_batches;
  schedule.ranks.resize(training.ranks.size());
  // Every rank takes micro-batches in order and, of each, its chunks in the order of the data; so nothing waits in a circle.
  for (int i = 0; i < micro_batches; ++i)
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
      auto& actions = schedule.ranks[static_cast<std::size_t>(schedule.rank_of(chunk, i))].prologue;
      for (const auto& [source, target] : schedule.edges)
        if (target == chunk) actions.push_back({ActionKind::ReceiveActivation, chunk, i, 0, Action::kNone, source});
      actions.push_back({ActionKind::Forward, chunk, i, 0, Action::kNone, Action::kNone});
      for (const auto& [source, target] : schedule.edges)
        if (source == chunk) actions.push_back({ActionKind::SendActivation, chunk, i, 0, Action::kNone, target});
    }
  return schedule;
}

std::pair<std::int64_t, std::int64_t> count_hits(const at::Tensor& prediction, const at::Tensor& target) {
  const at::Tensor best = prediction.detach().argmax(-1).view({-1}), wanted = target.reshape({-1});
  if (best.numel() != wanted.numel()) return {0, 0};
  return {best.eq(wanted).sum().item<std::int64_t>(), wanted.numel()};
}

EvaluationResult evaluate(const Model& model, const Layers& layers, std::int64_t micro_batches,
                          const std::function<MicroBatchData(std::int64_t)>& data) {
  const c10::NoGradGuard no_grad;
  EvaluationResult result;
  std::int64_t right = 0, predictions = 0;
  for (std::int64_t i = 0; i < micro_batches; ++i) {
    const MicroBatchData batch = data(i);
    const ForwardContext context{false, 0, &batch.samples, false};
    const ModelOutputs outputs = run(model, layers, batch.inputs, context);
    const auto rows = static_cast<std::int64_t>(batch.samples.size());
    result.loss += outputs.loss.item<double>() * static_cast<double>(rows);
    result.samples += rows;
    if (!outputs.prediction.defined() || model.target < 0) continue;
    const auto [hits, all] = count_hits(outputs.prediction, batch.inputs[static_cast<std::size_t>(model.target)]);
    right += hits;
    predictions += all;
  }
  if (result.samples > 0) result.loss /= static_cast<double>(result.samples);
  if (predictions > 0) result.accuracy = static_cast<double>(right) / static_cast<double>(predictions);
  return result;
}

}  // namespace pipedream
