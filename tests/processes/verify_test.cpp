#include "pipedream/runtime/verify.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support.hpp"

namespace pipedream::test {
namespace {

struct VerifyCase {
  std::string schedule, policy;
  std::vector<int> shape;
  int step;
};
void PrintTo(const VerifyCase& c, std::ostream* out) { *out << fmt::format("{}_{}_{}_{}", c.schedule, c.policy, fmt::join(c.shape, "-"), c.step); }

class Verify : public testing::TestWithParam<VerifyCase> {};

TEST_P(Verify, AgreesWithTheRunAndSeesAChangedWeight) {
  const auto& [schedule, policy, shape, step] = GetParam();
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {13, 4, 3, 5});
  const Plan plan = plan_by_count(model, shape, schedule, policy, step);
  TrainOptions options;
  options.optimizer.momentum = 0.9;
  options.optimizer.learning_rate = 0.05;
  options.steps = 8;
  options.collect_weights = options.collect_gradients = true;
  auto run = run_training(model, plan, options, data);
  const Reworked rework = rework_on_one_rank(model, plan, options, data);
  const VerifyReport report = compare_with_rework(run, rework);
  EXPECT_EQ(report.micro_batches, static_cast<int>(run.losses.size()));
  EXPECT_LE(report.loss_difference, 1e-4);
  EXPECT_LE(report.weight_difference, 1e-5);
  EXPECT_LE(report.gradient_difference, 1e-4);
  EXPECT_EQ(run.gradients.size(), rework.gradients.size());
  run.gradients[5].gradient.view({-1})[0] += 0.5;
  const VerifyReport bad_gradient = compare_with_rework(run, rework);
  EXPECT_GT(bad_gradient.gradient_difference, 1e-2);
  EXPECT_EQ(bad_gradient.gradient_at, run.gradients[5].name);
  EXPECT_EQ(bad_gradient.gradient_step, run.gradients[5].step);
  EXPECT_EQ(bad_gradient.weight_difference, report.weight_difference);
  run.weights[2].tensor.view({-1})[0] += 0.01;
  const VerifyReport wrong = compare_with_rework(run, rework);
  EXPECT_GT(wrong.weight_difference, 1e-3);
  EXPECT_EQ(wrong.weight_at, run.weights[2].name);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Verify,
                         testing::Values(VerifyCase{"1f1b", "flush", {1, 1}, 4}, VerifyCase{"gpipe", "flush", {2, 1}, 3},
                                         VerifyCase{"1f1b-async", "stash", {1, 1, 1}, 1}, VerifyCase{"1f1b-async", "stash", {2, 1}, 1},
                                         VerifyCase{"1f1b-async", "vertical-sync", {1, 1, 1}, 1}, VerifyCase{"1f1b-async", "2bw", {1, 1}, 2},
                                         VerifyCase{"data-parallel", "flush", {3}, 3}));

TEST(VerifyFlush, OneDeviceIsBitForBit) {
  const Model model = small_residual();
  const SourceFactory data = random_data(model, {8, 4, 4, 5});
  TrainOptions options;
  options.steps = 3;
  options.collect_weights = options.collect_gradients = true;
  options.threads_per_rank = 1;
  at::set_num_threads(1);  // sums of libtorch 2's convolutions depend on it
  const Plan plan = plan_by_count(model, {1, 1}, "1f1b", "flush", 2);
  const VerifyReport report = compare_with_rework(run_training(model, plan, options, data), rework_on_one_rank(model, plan, options, data));
  EXPECT_EQ(report.loss_difference, 0);
  EXPECT_EQ(report.weight_difference, 0);
  EXPECT_EQ(report.gradient_difference, 0);
}

TEST(VerifyFlush, ClipsAsTheRunDoes) {
  const Model model = small_tied();
  const SourceFactory data = random_data(model, {8, 4, 3, 5});
  TrainOptions options;
  options.steps = 4;
  options.clip_norm = 0.05;
  options.collect_weights = options.collect_gradients = true;
  const Plan plan = plan_by_count(model, {1, 1}, "1f1b", "flush", 2);
  const TrainResult run = run_training(model, plan, options, data);
  const Reworked rework = rework_on_one_rank(model, plan, options, data);
  const VerifyReport report = compare_with_rework(run, rework);
  EXPECT_LE(report.gradient_difference, 1e-4);
  EXPECT_LE(report.weight_difference, 1e-5);
  double squares = 0;  // of the first step; the clip was needed
  for (const auto& gradient : rework.gradients)
    if (gradient.step == 0) squares += std::pow(gradient.gradient.norm().item<double>(), 2);
  EXPECT_NEAR(std::sqrt(squares), 0.05, 1e-4);
}

}  // namespace
}  // namespace pipedream::test
