#include "pipedream/model/precision.hpp"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/runtime/verify.hpp"
#include "support.hpp"

namespace pipedream::test {
namespace {

TrainOptions bfloat16_options() {
  TrainOptions options;
  options.seed = 7;
  options.optimizer.learning_rate = 0.05;
  options.optimizer.momentum = 0.9;
  options.precision = Precision::BFloat16;
  return options;
}

class BFloat16 : public testing::TestWithParam<const char*> {};

Model model_of(const std::string& name) { return name == "mlp" ? small_mlp() : name == "residual" ? small_residual() : small_dropout(); }

TEST_P(BFloat16, APipelineEqualsOneDeviceBitForBitAndIsNotFloat32) {
  const Model model = model_of(GetParam());
  const SourceFactory data = random_data(model, {11, 4, 2, 5});
  TrainOptions options = bfloat16_options();
  const auto one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 4), options, data);
  const auto two = run_training(model, plan_by_count(model, {1, 1}, "1f1b", "flush", 4), options, data);
  EXPECT_EQ(two.losses, one.losses);
  EXPECT_EQ(largest_difference(two.weights, one.weights), 0);
  for (const auto& weight : two.weights) EXPECT_EQ(weight.tensor.scalar_type(), at::kFloat) << weight.name;
  options.precision = Precision::Float32;
  const auto exact = run_training(model, plan_by_count(model, {1, 1}, "1f1b", "flush", 4), options, data);
  EXPECT_NE(two.losses, exact.losses);
  // bfloat16 has 8 bits: 0.4 % for each rounding.
  for (std::size_t i = 0; i < two.losses.size(); ++i) EXPECT_NEAR(two.losses[i], exact.losses[i], 0.05 * (1 + exact.losses[i])) << i;
}

TEST_P(BFloat16, RecomputationAndVersionsOfWeightsChangeNothing) {
  const Model model = model_of(GetParam());
  const SourceFactory data = random_data(model, {9, 4, 4, 5});
  TrainOptions options = bfloat16_options();
  options.steps = 9;
  Plan plan = plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1);
  const auto kept = run_training(model, plan, options, data);
  const Reworked rework = rework_on_one_rank(model, plan, options, data);
  EXPECT_EQ(kept.losses, rework.losses);
  for (auto& stage : plan.stages) stage.recompute = true;
  const auto again = run_training(model, plan, options, data);
  EXPECT_EQ(again.losses, kept.losses);
  EXPECT_EQ(largest_difference(again.weights, kept.weights), 0);
}
INSTANTIATE_TEST_SUITE_P(Models, BFloat16, testing::Values("mlp", "residual", "dropout"));

TEST(RunLayer, GivesBFloat16ButALossInFloat32AndLeavesTheThreadAsItWas) {
  const auto layer = linear(6, 3).second({1, "fc"});
  ForwardContext context;
  context.precision = Precision::BFloat16;
  const at::Tensor x = at::ones({2, 6}).requires_grad_(true);
  const at::Tensor y = run_layer(*layer, {x}, context, false)[0];
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(at::mm(at::ones({2, 2}), at::ones({2, 2})).scalar_type(), at::kFloat);
  y.sum().backward();
  EXPECT_EQ(layer->parameters()[0].tensor.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
  const auto loss = cross_entropy().second({1, "loss"});
  EXPECT_EQ(run_layer(*loss, {y.detach(), at::zeros({2}, at::kLong)}, context, true)[0].scalar_type(), at::kFloat);
}

TEST(Precision, NamesGoThereAndBack) {
  for (const auto precision : {Precision::Float32, Precision::BFloat16}) EXPECT_EQ(parse_precision(name_of(precision)), precision);
  EXPECT_THROW((void)parse_precision("float16"), UsageError);
}

}  // namespace
}  // namespace pipedream::test
