#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "pipedream/core/error.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/runtime/verify.hpp"
#include "train_over.hpp"

/// Asynchronous data parallelism: which steps see which weights, the race of the ranks decides. What a run says of its race is enough to run it again
/// on one device.
namespace pipedream::test {
namespace {

at::Tensor flat_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const auto& tensor : tensors) parts.push_back(tensor.detach().reshape({-1}));
  return at::cat(parts);
}

/// Every shard's weights after each of its steps, from what the run recorded: a gradient is worked out when the versions that it read are there,
/// and steps its shard when it is next there. SGD with momentum and weight decay as torch.optim.SGD defines it.
class Race {
 public:
  Race(const Model& model, const TrainOptions& options, const TrainResult& run, const SourceFactory& data)
      : model_(model), options_(options), run_(run), layers_(create_layers(model, options.seed)), shards_(run.applied.size()) {
    for (const auto& parameter : distinct_parameters(model, layers_)) parameters_.push_back(parameter.tensor);
    const at::Tensor all = flat_of(parameters_);
    for (std::size_t s = 0; s < shards_.size(); ++s) shards_[s].versions.push_back(slice(all, s).clone());
    for (int epoch = 0; epoch < options.epochs; ++epoch) sources_.push_back(data({epoch, true, std::vector<bool>(model.inputs.size(), true), 1}));
    const auto count = run.losses.size();
    losses.resize(count);
    gradients_.resize(count);
    reads_.resize(count, std::vector<std::int64_t>(shards_.size(), -1));
    for (std::size_t s = 0; s < shards_.size(); ++s)
      for (const auto& applied : run.applied[s]) reads_.at(static_cast<std::size_t>(applied.micro_batch)).at(s) = applied.read_version;
  }

  void rerun() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < gradients_.size(); ++i) moved = work_out(i) || moved;
      for (std::size_t s = 0; s < shards_.size(); ++s)
        while (step(s)) moved = true;
    }
    for (std::size_t s = 0; s < shards_.size(); ++s) EXPECT_EQ(shards_[s].versions.size(), gradients_.size() + 1) << "of shard " << s;
  }

  [[nodiscard]] at::Tensor newest() const {
    std::vector<at::Tensor> all;
    for (const auto& shard : shards_) all.push_back(shard.versions.back());
    return at::cat(all);
  }

  std::vector<double> losses;

 private:
  struct State {
    std::vector<at::Tensor> versions;
    at::Tensor momentum;
  };

  [[nodiscard]] at::Tensor slice(const at::Tensor& flat, std::size_t shard) const {
    const auto s = static_cast<std::int64_t>(shard), count = static_cast<std::int64_t>(shards_.size());
    return flat.slice(0, flat.numel() * s / count, flat.numel() * (s + 1) / count);
  }

  bool work_out(std::size_t i) {
    if (gradients_[i].defined()) return false;
    std::vector<at::Tensor> parts;
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      const auto version = reads_[i][s];
      if (version < 0 || version >= static_cast<std::int64_t>(shards_[s].versions.size())) return false;
      parts.push_back(shards_[s].versions[static_cast<std::size_t>(version)]);
    }
    const at::Tensor weights = at::cat(parts);
    {
      const at::NoGradGuard no_grad;
      std::int64_t at = 0;
      for (auto& parameter : parameters_) {
        parameter.copy_(weights.slice(0, at, at + parameter.numel()).view(parameter.sizes()));
        at += parameter.numel();
      }
    }
    const auto per_epoch = static_cast<std::size_t>(sources_[0]->num_micro_batches());
    MicroBatchData batch = sources_[i / per_epoch]->get(static_cast<int>(i % per_epoch), true);
    const ForwardContext context{true, options_.seed, &batch.samples, true};
    const ModelOutputs outputs = run(model_, layers_, batch.inputs, context);
    losses[i] = outputs.loss.item<double>();
    outputs.loss.backward();
    std::vector<at::Tensor> gradients;
    for (auto& parameter : parameters_) {
      gradients.push_back(parameter.grad());
      parameter.mutable_grad().reset();
    }
    gradients_[i] = flat_of(gradients);
    return true;
  }

  bool step(std::size_t s) {
    const auto done = shards_[s].versions.size() - 1;
    if (done == run_.applied[s].size()) return false;
    const at::Tensor& gradient = gradients_[static_cast<std::size_t>(run_.applied[s][done].micro_batch)];
    if (!gradient.defined()) return false;
    const at::Tensor& old = shards_[s].versions.back();
    const at::Tensor direction = slice(gradient, s) + old * options_.optimizer.weight_decay;
    at::Tensor& momentum = shards_[s].momentum;
    momentum = momentum.defined() ? momentum * options_.optimizer.momentum + direction : direction;
    shards_[s].versions.push_back(old - momentum * options_.optimizer.learning_rate);
    return true;
  }

  const Model& model_;
  const TrainOptions& options_;
  const TrainResult& run_;
  Layers layers_;
  std::vector<State> shards_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::unique_ptr<MicroBatchSource>> sources_;
  std::vector<at::Tensor> gradients_;
  std::vector<std::vector<std::int64_t>> reads_;  // per micro-batch and shard
};

/// Data with something done to each micro-batch.
class ChangedSource final : public MicroBatchSource {
 public:
  using Change = std::function<void(int micro_batch, MicroBatchData& data)>;
  ChangedSource(std::unique_ptr<MicroBatchSource> source, Change change) : source_(std::move(source)), change_(std::move(change)) {}
  [[nodiscard]] int num_micro_batches() const override { return source_->num_micro_batches(); }
  [[nodiscard]] std::int64_t rows(int micro_batch) const override { return source_->rows(micro_batch); }
  [[nodiscard]] MicroBatchData get(int micro_batch, bool with_tensors) override {
    MicroBatchData data = source_->get(micro_batch, with_tensors);
    change_(micro_batch, data);
    return data;
  }

 private:
  std::unique_ptr<MicroBatchSource> source_;
  Change change_;
};

SourceFactory changed(const SourceFactory& plain, const ChangedSource::Change& change) {
  return [=](const SourceRequest& request) -> std::unique_ptr<MicroBatchSource> {
    auto source = plain(request);
    if (!source) return nullptr;
    return std::make_unique<ChangedSource>(std::move(source), change);
  };
}

struct AspCase {
  std::string transport;
  int ranks, micro_batches, extra;
};
void PrintTo(const AspCase& c, std::ostream* out) { *out << fmt::format("{}_{}_ranks_{}_extra_{}", c.transport, c.ranks, c.micro_batches, c.extra); }

class Asp : public testing::TestWithParam<AspCase> {};

TEST_P(Asp, DoesWhatItSaysItDid) {
  const auto& [transport, ranks, micro_batches, extra] = GetParam();
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {micro_batches, 4, 3, 5}, true);
  const Plan plan = plan_by_count(model, {ranks}, "asp", "stash", 1);
  TrainOptions options;
  options.epochs = 2;
  options.optimizer.learning_rate = 0.02;
  options.optimizer.momentum = 0.9;
  options.optimizer.weight_decay = 0.01;
  options.collect_weights = true;
  options.threads_per_rank = 1;
  options.extra_in_flight = extra;
  const TrainResult run = train_over(transport, model, plan, options, data);
  ASSERT_EQ(run.steps, 2 * micro_batches);
  ASSERT_EQ(run.applied.size(), static_cast<std::size_t>(ranks));
  Race race(model, options, run, data);
  race.rerun();
  if (testing::Test::HasFailure()) return;
  for (std::size_t i = 0; i < run.losses.size(); ++i) EXPECT_NEAR(race.losses[i], run.losses[i], 1e-5) << i;
  std::vector<at::Tensor> weights;
  for (const auto& weight : run.weights) weights.push_back(weight.tensor);
  EXPECT_LE((flat_of(weights) - race.newest()).abs().max().item<double>(), 1e-5);

  // Every micro-batch stepped every shard once. Its weights held all gradients of its own replica but the last ones on their way.
  for (const auto& shard : run.applied) {
    std::map<int, std::int64_t> step_of;
    for (std::size_t step = 0; step < shard.size(); ++step)
      EXPECT_TRUE(step_of.emplace(shard[step].micro_batch, static_cast<std::int64_t>(step)).second);
    EXPECT_EQ(step_of.size(), static_cast<std::size_t>(2 * micro_batches));
    for (const auto& applied : shard) {
      EXPECT_LE(applied.read_version, step_of[applied.micro_batch]);
      const int in_pass = applied.micro_batch % micro_batches, before = in_pass - ranks * (2 + extra);
      if (before >= 0) {
        EXPECT_GT(applied.read_version, step_of[applied.micro_batch - ranks * (2 + extra)]);
      }
      if (applied.micro_batch >= micro_batches) {
        EXPECT_GE(applied.read_version, micro_batches) << "nothing is under way between passes";
      }
    }
  }
  ASSERT_TRUE(run.staleness);
  EXPECT_GE(run.staleness->most, run.staleness->mean);
}
INSTANTIATE_TEST_SUITE_P(Runs, Asp,
                         testing::Values(AspCase{"threads", 2, 23, 0}, AspCase{"threads", 3, 20, 2}, AspCase{"gloo", 2, 23, 0},
                                         AspCase{"gloo", 3, 2, 0}, AspCase{"gloo", 4, 33, 1}, AspCase{"hybrid", 3, 25, 0}));

TEST(AspTrains, OnOneRankLikeOneDevice) {
  const Model model = small_mlp();
  TrainOptions options;
  options.optimizer.momentum = 0.9;
  options.collect_weights = true;
  const SourceFactory data = random_data(model, {5, 4, 3, 5});
  const auto alone = run_training(model, plan_by_count(model, {1}, "asp", "stash", 1), options, data);
  const auto device = run_training(model, plan_by_count(model, {1}, "data-parallel", "flush", 1), options, data);
  EXPECT_EQ(largest_difference(alone.weights, device.weights), 0);
  EXPECT_EQ(alone.losses, device.losses);
  EXPECT_FALSE(alone.staleness);
}

TEST(AspTrains, BuffersAndOtherTypesOfLayersToo) {
  const Model model = small_residual();
  TrainOptions options;
  options.optimizer.name = "adam";
  options.optimizer.learning_rate = 1e-3;
  options.collect_weights = true;
  const auto run = train_over("gloo", model, plan_by_count(model, {2}, "asp", "stash", 1), options, random_data(model, {9, 4, 2, 5}, true));
  EXPECT_FALSE(run.buffers.empty());
  for (const auto& weight : run.weights) EXPECT_TRUE(weight.tensor.isfinite().all().item<bool>()) << weight.name;
}

class AspSlowRank : public testing::TestWithParam<std::string> {};

TEST_P(AspSlowRank, HoldsNobodyAndMayTakeLongerThanTheDeadlineInAll) {
  const Model model = small_mlp();
  const auto plain = random_data(model, {20, 2, 2, 5});
  const SourceFactory data = changed(plain, [](int micro_batch, MicroBatchData&) {
    if (micro_batch % 2 == 1) std::this_thread::sleep_for(std::chrono::milliseconds(120));
  });
  TrainOptions options;
  options.deadline_ms = 600;  // rank 1 takes twice that
  options.threads_per_rank = 1;
  const auto run = train_over(GetParam(), model, plan_by_count(model, {2}, "asp", "stash", 1), options, data, std::chrono::milliseconds(600));
  ASSERT_EQ(run.applied.size(), 2U);
  // Rank 0 was through with its half before rank 1 had done much.
  int own_of_first_half = 0;
  for (std::size_t step = 0; step < 10; ++step) own_of_first_half += run.applied[0][step].micro_batch % 2 == 0;
  EXPECT_GE(own_of_first_half, 7);
}
INSTANTIATE_TEST_SUITE_P(Transports, AspSlowRank, testing::Values("threads", "gloo", "hybrid"));

TEST(AspSettings, WhatHasNoMeaningIsRefused) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {4, 2, 2, 5});
  EXPECT_THROW((void)run_training(model, plan_by_count(model, {1, 1}, "asp", "stash", 1), {}, data), UsageError);
  EXPECT_THROW((void)run_training(model, plan_by_count(model, {2}, "asp", "stash", 2), {}, data), UsageError);
  EXPECT_THROW((void)run_training(model, plan_by_count(model, {2}, "asp", "2bw", 1), {}, data), UsageError);
  TrainOptions options;
  options.steps = 2;
  EXPECT_THROW((void)rework_on_one_rank(model, plan_by_count(model, {2}, "asp", "stash", 1), options, data), UsageError);
}

TEST(AspFault, ALayerThatFailsEndsAllRanksWithItsReason) {
  for (const std::string transport : {"threads", "gloo", "hybrid"}) {
    const Model model = small_mlp();
    const SourceFactory data = changed(random_data(model, {40, 2, 2, 5}), [](int micro_batch, MicroBatchData&) {
      if (micro_batch == 7) throw std::runtime_error("no more data");
    });
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::string> errors = train_errors(transport, model, plan_by_count(model, {3}, "asp", "stash", 1), {}, data);
    EXPECT_THAT(errors, testing::Contains(testing::HasSubstr("no more data"))) << transport;
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << transport;
  }
}

}  // namespace
}  // namespace pipedream::test
