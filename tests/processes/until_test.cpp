#include <gtest/gtest.h>

#include "train_over.hpp"

/// Runs that are evaluated within an epoch and end when they are good enough.
namespace pipedream::test {
namespace {

class Until : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, Until, testing::Values("threads", "gloo", "hybrid"));

TrainOptions evaluated_every(std::int64_t steps) {
  TrainOptions options;
  options.evaluate_every = steps;
  options.collect_weights = true;
  options.threads_per_rank = 1;
  options.optimizer.momentum = 0.9;
  options.epochs = 2;
  return options;
}

TEST_P(Until, EvaluationsWithinAnEpochChangeNothingOfARunThatFlushes) {
  const Model model = small_dropout();
  const SourceFactory data = random_data(model, {13, 4, 3, 5}, true);
  const Plan plan = plan_by_count(model, {2, 1}, "1f1b", "flush", 3);  // 5 steps an epoch
  const auto often = train_over(GetParam(), model, plan, evaluated_every(2), data);
  const auto once = train_over(GetParam(), model, plan, evaluated_every(0), data);
  EXPECT_EQ(largest_difference(often.weights, once.weights), 0);
  EXPECT_EQ(often.losses, once.losses);
  ASSERT_EQ(often.evaluations.size(), 6U);  // after 2, 4 and 5 steps of both epochs
  EXPECT_EQ(once.evaluations.size(), 2U);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(often.evaluations[i].steps, (std::vector<std::int64_t>{2, 4, 5, 7, 9, 10})[i]);
    EXPECT_EQ(often.evaluations[i].samples, (std::vector<std::int64_t>{24, 48, 51, 75, 99, 102})[i]);
  }
  EXPECT_EQ(often.evaluations.back().training_bytes_sent, often.training_bytes_sent);
  ASSERT_EQ(often.epochs.size(), 2U);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    EXPECT_NEAR(often.epochs[epoch].train_loss, once.epochs[epoch].train_loss, 1e-9);
    EXPECT_EQ(often.epochs[epoch].test_loss, once.epochs[epoch].test_loss);
    EXPECT_EQ(often.epochs[epoch].samples, once.epochs[epoch].samples);
  }
}

TEST_P(Until, TheEndIsWhereAllRanksSayIt) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {12, 4, 4, 5}, true);
  for (const auto& [schedule, policy, shape] :
       {std::tuple("1f1b-async", "stash", std::vector<int>{1, 1, 1}), std::tuple("asp", "stash", std::vector<int>{2})}) {
    const Plan plan = plan_by_count(model, shape, schedule, policy, 1);
    TrainOptions options = evaluated_every(5);
    options.until_accuracy = 1e-9;  // some prediction is right
    auto run = train_over(GetParam(), model, plan, options, data);
    EXPECT_EQ(run.steps, 5) << schedule;
    EXPECT_EQ(run.losses.size(), 5U);
    options.until_accuracy = 1;  // never
    run = train_over(GetParam(), model, plan, options, data);
    EXPECT_EQ(run.steps, 24) << schedule;
    EXPECT_EQ(run.evaluations.size(), 6U);
    options.until_ms = 1e-6;
    run = train_over(GetParam(), model, plan, options, data);
    EXPECT_EQ(run.steps, 5) << schedule;
    EXPECT_EQ(run.epochs.size(), 1U);
  }
}

}  // namespace
}  // namespace pipedream::test
