#include "support.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "pipedream/core/random.hpp"
#include "pipedream/model/layers.hpp"

namespace pipedream::test {
namespace {

class RandomSource final : public MicroBatchSource {
 public:
  RandomSource(const Model& model, const DataShape& shape, std::uint64_t key) : model_(model), shape_(shape), key_(key) {}
  [[nodiscard]] int num_micro_batches() const override { return shape_.micro_batches; }
  [[nodiscard]] std::int64_t rows(int micro_batch) const override { return micro_batch + 1 == shape_.micro_batches ? shape_.last_rows : shape_.rows; }
  [[nodiscard]] MicroBatchData get(int micro_batch, bool with_tensors) override {
    MicroBatchData data;
    const std::uint64_t key = combine_keys(key_, static_cast<std::uint64_t>(micro_batch));
    for (std::int64_t row = 0; row < rows(micro_batch); ++row) data.samples.push_back(combine_keys(key, static_cast<std::uint64_t>(row)));
    if (!with_tensors) return data;
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
      std::vector<std::int64_t> sizes{rows(micro_batch)};
      sizes.insert(sizes.end(), model_.inputs[i].shape.begin(), model_.inputs[i].shape.end());
      at::Tensor tensor = at::empty(sizes, model_.inputs[i].dtype);
      const std::uint64_t stream = combine_keys(key, i);
      for (std::int64_t n = 0; n < tensor.numel(); ++n) {
        if (model_.inputs[i].dtype == at::kFloat)
          tensor.data_ptr<float>()[n] = static_cast<float>(random_normal(stream, static_cast<std::uint64_t>(n)));
        else
          tensor.data_ptr<std::int64_t>()[n] =
              static_cast<std::int64_t>(random_uniform(stream, static_cast<std::uint64_t>(n)) * static_cast<double>(shape_.classes));
      }
      data.inputs.push_back(tensor);
    }
    return data;
  }

 private:
  const Model& model_;
  DataShape shape_;
  std::uint64_t key_;
};

}  // namespace

Model small_mlp() {
  ModelBuilder b("small_mlp");
  InputRef x = b.input("x", {6});
  const InputRef target = b.input("target", {}, at::kLong);
  for (int i = 0; i < 5; ++i) {
    x = b.add("fc" + std::to_string(i), linear(i == 0 ? 6 : 8, 8), {x});
    x = b.add("relu" + std::to_string(i), relu(), {x});
  }
  x = b.add("head", linear(8, 5), {x});
  return b.finish(b.add("loss", cross_entropy(), {x, target}), x, target);
}

Model small_residual() {
  ModelBuilder b("small_residual");
  InputRef x = b.input("image", {2, 6, 6});
  const InputRef target = b.input("target", {}, at::kLong);
  ConvOptions same;
  same.padding = 1;
  // No bias before a batch norm: its gradient is rounding noise, which Adam would blow up to steps of full size.
  ConvOptions without_bias = same;
  without_bias.bias = false;
  x = b.add("stem", conv2d(2, 4, 3, same), {x});
  for (int i = 0; i < 2; ++i) {
    const std::string name = "block" + std::to_string(i);
    InputRef y = b.add(name + ".conv1", conv2d(4, 4, 3, without_bias), {x});
    y = b.add(name + ".bn1", batch_norm2d(4), {y});
    y = b.add(name + ".relu1", relu(), {y});
    y = b.add(name + ".conv2", conv2d(4, 4, 3, same), {y});
    y = b.add(name + ".add", add(), {y, x});
    x = b.add(name + ".relu2", relu(), {y});
  }
  x = b.add("flatten", flatten(), {x});
  x = b.add("head", linear(4 * 36, 5), {x});
  return b.finish(b.add("loss", cross_entropy(), {x, target}), x, target);
}

Model small_dropout() {
  ModelBuilder b("small_dropout");
  InputRef x = b.input("x", {6});
  const InputRef target = b.input("target", {}, at::kLong);
  for (int i = 0; i < 4; ++i) {
    x = b.add("fc" + std::to_string(i), linear(i == 0 ? 6 : 8, 8), {x});
    x = b.add("drop" + std::to_string(i), dropout(0.3), {x});
  }
  x = b.add("head", linear(8, 5), {x});
  return b.finish(b.add("loss", cross_entropy(), {x, target}), x, target);
}

Model small_tied() {
  ModelBuilder b("small_tied");
  const InputRef tokens = b.input("tokens", {3}, at::kLong);
  const InputRef target = b.input("target", {3}, at::kLong);
  const InputRef embedded = b.add("embedding", embedding(5, 8), {tokens});
  InputRef x = embedded;
  for (int i = 0; i < 3; ++i) {
    x = b.add("fc" + std::to_string(i), linear(8, 8), {x});
    x = b.add("gelu" + std::to_string(i), gelu(), {x});
  }
  LinearOptions without_bias;
  without_bias.bias = false;
  const InputRef head = b.add("head", linear(8, 5, without_bias), {x});
  b.tie(embedded, "weight", head, "weight");
  return b.finish(b.add("loss", cross_entropy(), {head, target}), head, target);
}

SourceFactory random_data(const Model& model, const DataShape& shape, bool with_test) {
  return [&model, shape, with_test](const SourceRequest& request) -> std::unique_ptr<MicroBatchSource> {
    const bool training = request.training;
    if (!training && !with_test) return nullptr;
    return std::make_unique<RandomSource>(model, shape, combine_keys(training ? 1 : 2, training ? static_cast<std::uint64_t>(request.epoch) : 0));
  };
}

Plan plan_by_count(const Model& model, const std::vector<int>& replicas, const std::string& schedule, const std::string& policy, int micro_batches) {
  Plan plan;
  plan.model = model.name;
  plan.schedule = schedule;
  plan.policy = policy;
  plan.micro_batches = micro_batches;
  const std::size_t stages = replicas.size();
  int rank = 0;
  for (std::size_t k = 0; k < stages; ++k) {
    StagePlan stage;
    stage.name = std::to_string(k);
    for (std::size_t i = model.nodes.size() * k / stages; i < model.nodes.size() * (k + 1) / stages; ++i) stage.layers.push_back(model.nodes[i].name);
    for (int r = 0; r < replicas[k]; ++r) stage.ranks.push_back(rank++);
    plan.stages.push_back(stage);
  }
  return plan;
}

double largest_difference(const std::vector<NamedWeight>& a, const std::vector<NamedWeight>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].name != b[i].name || a[i].tensor.sizes() != b[i].tensor.sizes()) return std::numeric_limits<double>::infinity();
    const double difference = (a[i].tensor - b[i].tensor).abs().max().item<double>();
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference / (b[i].tensor.abs().max().item<double>() + 1e-12));
  }
  return largest;
}

TrainResult run_training(const Model& model, const Plan& plan, TrainOptions options, const SourceFactory& data) {
  options.collect_weights = true;
  options.threads_per_rank = 1;
  TrainObserver observer;
  return train(model, plan, options, data, observer);
}

}  // namespace pipedream::test
