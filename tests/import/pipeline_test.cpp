#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../runtime/reenactment.hpp"
#include "../runtime/support.hpp"
#include "fixtures.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/model/import/import_model.hpp"

namespace pipedream::test {
namespace {

TrainOptions plain_options() {
  TrainOptions options;
  options.seed = 7;
  options.optimizer.name = "sgd";
  options.optimizer.learning_rate = 0.05;
  options.optimizer.momentum = 0.9;
  return options;
}

class ImportedPipeline : public ::testing::TestWithParam<std::string> {};

Model load_fixture(const std::string& name) { return import_model(pipedream::testing::fixture(name + ".pt2")); }

/// All integer inputs of the fixtures are below 4: rows of the smallest embedding, classes of the smallest head.
const DataShape kShape{11, 4, 2, 3};

TEST_P(ImportedPipeline, FlushEqualsOneDevice) {
  const Model model = load_fixture(GetParam());
  const SourceFactory data = random_data(model, kShape);
  const TrainResult one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 4), plain_options(), data);
  for (const auto& shape : {std::vector<int>{1, 1}, std::vector<int>{1, 1, 1}}) {
    const TrainResult many = run_training(model, plan_by_count(model, shape, "1f1b", "flush", 4), plain_options(), data);
    ASSERT_EQ(one.losses.size(), many.losses.size());
    for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5) << "micro-batch " << i;
    EXPECT_LE(largest_difference(many.weights, one.weights), 1e-4);
  }
}

TEST_P(ImportedPipeline, StashEqualsReenactment) {
  const Model model = load_fixture(GetParam());
  const SourceFactory data = random_data(model, kShape);
  constexpr int kStages = 3;
  const Plan plan = plan_by_count(model, std::vector<int>(kStages, 1), "1f1b-async", "stash", 1);
  if (!model.ties.empty()) {  // a weight in several stages needs a flush, and the runtime says so
    EXPECT_THROW((void)run_training(model, plan, plain_options(), data), UsageError);
    return;
  }
  const TrainResult ours = run_training(model, plan, plain_options(), data);
  std::vector<std::vector<std::string>> stages;
  for (const auto& stage : plan.stages) stages.push_back(stage.layers);
  const auto source = data({});
  const auto theirs = reenact(model, {stages, [](int stage, int i) { return std::max(0, i - (kStages - 1 - stage)); }, 1}, plain_options(), *source);
  ASSERT_EQ(ours.losses.size(), theirs.losses.size());
  for (std::size_t i = 0; i < ours.losses.size(); ++i) EXPECT_NEAR(ours.losses[i], theirs.losses[i], 2e-4) << "micro-batch " << i;
  EXPECT_LE(largest_difference(ours.weights, theirs.weights), 2e-3);
}

// "with_loss" sends an integer tensor and constants between layers and has a frozen layer; its loss is in the file.
INSTANTIATE_TEST_SUITE_P(Fixtures, ImportedPipeline,
                         ::testing::Values("mlp", "dropout_in_place", "cnn", "lstm", "with_loss", "views", "stochastic_depth"),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace pipedream::test
