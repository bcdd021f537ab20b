#include "pipedream/runtime/optimizer.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/runtime/learning_rate.hpp"

namespace pipedream {
namespace {

at::Tensor one(double value) { return at::full({1}, value); }

double step_once(Optimizer& optimizer, double weight, double gradient, double rate, double scale = 1) {
  at::Tensor target = one(-1);
  optimizer.step({one(weight)}, {target}, {one(gradient)}, rate, scale);
  return target.item<double>();
}

TEST(Optimizer, SgdWithMomentumNesterovAndDecayByHand) {
  OptimizerOptions options;
  options.momentum = 0.5;
  options.weight_decay = 0.1;
  const auto plain = make_optimizer(options);
  // g = 2 + 0.1 * 1 = 2.1, m = 2.1, w = 1 - 0.1 * 2.1 = 0.79; then g = 1 + 0.079 = 1.079, m = 0.5 * 2.1 + 1.079 = 2.129, w = 0.79 - 0.2129.
  EXPECT_NEAR(step_once(*plain, 1, 2, 0.1), 0.79, 1e-6);
  EXPECT_NEAR(step_once(*plain, 0.79, 1, 0.1), 0.5771, 1e-6);
  options.nesterov = true;
  const auto nesterov = make_optimizer(options);
  // d = g + 0.5 m: 2.1 + 1.05 = 3.15, w = 0.685.
  EXPECT_NEAR(step_once(*nesterov, 1, 2, 0.1), 0.685, 1e-6);
}

TEST(Optimizer, TheFirstStepOfAdamIsTheRateTowardsTheGradient) {
  OptimizerOptions options;
  options.name = "adam";
  const auto adam = make_optimizer(options);
  EXPECT_NEAR(step_once(*adam, 1, 3, 0.01), 0.99, 1e-6);  // m / sqrt(v) = g / |g| = 1
  options.name = "adamw";
  options.weight_decay = 0.5;
  const auto adamw = make_optimizer(options);
  EXPECT_NEAR(step_once(*adamw, 1, 3, 0.01), 1 - 0.01 * 0.5 - 0.01, 1e-6);
}

TEST(Optimizer, ScaleMultipliesTheGradientBeforeDecay) {
  OptimizerOptions options;
  options.weight_decay = 0.1;
  const auto sgd = make_optimizer(options);
  EXPECT_NEAR(step_once(*sgd, 1, 2, 0.1, 0.5), 1 - 0.1 * (1 + 0.1), 1e-6);
}

TEST(Optimizer, InPlaceEqualsOutOfPlaceAndLeavesTheSourceAlone) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    OptimizerOptions options;
    options.name = name;
    options.momentum = options.name == "sgd" ? 0.9 : 0;
    const auto a = make_optimizer(options), b = make_optimizer(options);
    const at::Tensor source = at::arange(37).to(at::kFloat), gradient = source * 0.3 - 2;
    at::Tensor target = at::empty_like(source), in_place = source.clone();
    a->step({source}, {target}, {gradient}, 0.1, 1);
    b->step({in_place}, {in_place}, {gradient}, 0.1, 1);
    EXPECT_TRUE(target.equal(in_place)) << name;
    EXPECT_TRUE(source.equal(at::arange(37).to(at::kFloat))) << name;
  }
}

TEST(Optimizer, AFusedPassEqualsTensorOperations) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    OptimizerOptions options;
    options.name = name;
    options.momentum = options.name == "sgd" ? 0.9 : 0;
    options.weight_decay = 0.01;
    const auto fused = make_optimizer(options), by_operations = make_optimizer(options);
    at::Tensor w = at::arange(33).to(at::kFloat) * 0.1, v = w.to(at::kDouble);
    for (int i = 0; i < 5; ++i) {
      const at::Tensor gradient = at::sin(at::arange(33).to(at::kDouble) + i);
      at::Tensor next_w = at::empty_like(w), next_v = at::empty_like(v);
      fused->step({w}, {next_w}, {gradient.to(at::kFloat)}, 0.05, 0.7);
      by_operations->step({v}, {next_v}, {gradient}, 0.05, 0.7);  // double tensors take the general way
      w = next_w;
      v = next_v;
    }
    EXPECT_LT((w.to(at::kDouble) - v).abs().max().item<double>(), 1e-5) << name;
  }
}

TEST(Optimizer, AParameterWithoutGradientIsCopied) {
  const auto sgd = make_optimizer({});
  at::Tensor target = one(-1);
  sgd->step({one(5)}, {target}, {at::Tensor()}, 0.1, 1);
  EXPECT_EQ(target.item<double>(), 5);
}

TEST(Optimizer, WrongOptionsAreRefused) {
  OptimizerOptions options;
  options.name = "lion";
  EXPECT_THROW((void)make_optimizer(options), UsageError);
  options.name = "sgd";
  options.momentum = 1;
  EXPECT_THROW((void)make_optimizer(options), UsageError);
  options.momentum = 0;
  options.nesterov = true;
  EXPECT_THROW((void)make_optimizer(options), UsageError);
}

TEST(LearningRate, SchedulesByHand) {
  const auto step = parse_learning_rate_schedule("step:every=10,factor=0.5,warmup=4");
  EXPECT_DOUBLE_EQ(learning_rate_at(step, 1, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(learning_rate_at(step, 1, 3, 100), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(step, 1, 25, 100), 0.25);
  const auto cosine = parse_learning_rate_schedule("cosine:floor=0.1");
  EXPECT_DOUBLE_EQ(learning_rate_at(cosine, 2, 0, 100), 2);
  EXPECT_NEAR(learning_rate_at(cosine, 2, 50, 100), 2 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(learning_rate_at(cosine, 2, 100, 100), 0.2, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate_at(parse_learning_rate_schedule("constant"), 3, 7, 9), 3);
}

TEST(LearningRate, WrongTextIsRefused) {
  for (const char* text :
       {"", "linear", "step", "step:every=0", "step:factor=0.1", "cosine:floor", "cosine:floor=x", "constant:every=3", "step:every=-1"})
    EXPECT_THROW((void)parse_learning_rate_schedule(text), UsageError) << text;
}

}  // namespace
}  // namespace pipedream
