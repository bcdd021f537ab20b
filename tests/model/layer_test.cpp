#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/model/run.hpp"

namespace pipedream {
namespace {

at::Tensor parameter(const Layer& layer, std::size_t index) { return layer.parameters().at(index).tensor; }

TEST(InitialWeights, DependOnSeedLayerAndParameterOnly) {
  const LayerFactory factory = linear(7, 5).second;
  const auto first = factory({1, "a"});
  (void)factory({1, "b"});  // whatever was created between them
  const auto second = factory({1, "a"});
  EXPECT_TRUE(at::equal(parameter(*first, 0), parameter(*second, 0)));
  EXPECT_FALSE(at::equal(parameter(*first, 0), parameter(*factory({1, "b"}), 0)));
  EXPECT_FALSE(at::equal(parameter(*first, 0), parameter(*factory({2, "a"}), 0)));
  EXPECT_FALSE(at::equal(parameter(*first, 0).flatten().slice(0, 0, 5), parameter(*first, 1)));
}

TEST(InitialWeights, HaveTheDistributionOfTorch) {
  const at::Tensor uniform = initial_values({"weight", {400, 250}, Initial::kaiming_uniform(250)}, {5, "layer"});
  const double bound = 1 / std::sqrt(250.0);  // uniform in [-bound, bound): deviation bound / sqrt(3)
  EXPECT_LE(uniform.abs().max().item<double>(), bound);
  EXPECT_NEAR(uniform.mean().item<double>(), 0, bound * 0.01);
  EXPECT_NEAR(uniform.std().item<double>(), bound / std::sqrt(3.0), bound * 0.01);
  const at::Tensor normal = initial_values({"weight", {99999}, Initial::normal(0.02)}, {5, "layer"});
  EXPECT_NEAR(normal.mean().item<double>(), 0, 0.0003);
  EXPECT_NEAR(normal.std().item<double>(), 0.02, 0.0003);
  EXPECT_NEAR(normal.pow(4).mean().item<double>() / std::pow(0.02, 4), 3, 0.15);  // fourth moment of a normal distribution
  EXPECT_TRUE(normal.isfinite().all().item<bool>());
}

ForwardContext with_samples(const std::vector<std::uint64_t>& samples, std::uint64_t seed = 1) {
  ForwardContext context;
  context.seed = seed;
  context.samples = &samples;
  return context;
}

TEST(Dropout, MaskOfASampleDoesNotDependOnItsCompany) {
  ASSERT_TRUE(rc::check([] {
    const auto samples = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::uint64_t>>(rc::gen::arbitrary<std::uint64_t>()));
    const auto width = *rc::gen::inRange<std::int64_t>(1, 40);
    const at::Tensor all = dropout_mask({static_cast<std::int64_t>(samples.size()), width}, 0.3, 99, with_samples(samples));
    const auto row = *rc::gen::inRange<std::size_t>(0, samples.size());
    const std::vector<std::uint64_t> alone = {samples[row]};
    RC_ASSERT(at::equal(dropout_mask({1, width}, 0.3, 99, with_samples(alone))[0], all[static_cast<std::int64_t>(row)]));
  }));
}

TEST(Dropout, MasksDifferByLayerSeedAndSample) {
  const std::vector<std::uint64_t> samples = {1, 2};
  const at::Tensor mask = dropout_mask({2, 256}, 0.5, 7, with_samples(samples));
  EXPECT_FALSE(at::equal(mask[0], mask[1]));
  EXPECT_FALSE(at::equal(mask, dropout_mask({2, 256}, 0.5, 8, with_samples(samples))));
  EXPECT_FALSE(at::equal(mask, dropout_mask({2, 256}, 0.5, 7, with_samples(samples, 2))));
}

TEST(Dropout, KeepsTheMeanAndDropsTheGivenShare) {
  std::vector<std::uint64_t> samples(100);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = i;
  for (const double probability : {0.1, 0.5, 0.9}) {
    const at::Tensor mask = dropout_mask({100, 1003}, probability, 7, with_samples(samples));
    EXPECT_NEAR((mask == 0).to(at::kDouble).mean().item<double>(), probability, 0.006);
    EXPECT_NEAR(mask.mean().item<double>(), 1, 0.03);
  }
}

TEST(Dropout, EvaluationLeavesTheInputAlone) {
  const auto layer = dropout(0.5).second({1, "drop"});
  ForwardContext evaluation;
  evaluation.training = false;
  const at::Tensor x = at::ones({3, 4});
  EXPECT_TRUE(at::equal(layer->forward({x}, evaluation)[0], x));
  EXPECT_FALSE(at::equal(layer->forward({x}, {})[0], x));
  EXPECT_TRUE(at::equal(x, at::ones({3, 4})));
}

TEST(AnotherVersion, WritingItLeavesTheGraphOfTheOldOneAlone) {
  const auto old = linear(3, 2).second({1, "fc"});
  const auto next = old->another_version();
  EXPECT_TRUE(at::equal(parameter(*old, 0), parameter(*next, 0)));
  const at::Tensor x = at::randn({4, 3}).requires_grad_();
  const at::Tensor expected = at::ones({4, 2}).mm(parameter(*old, 0).detach());  // d(sum of x W^T)/dx
  const at::Tensor sum = old->forward({x}, {})[0].sum();
  {
    const c10::NoGradGuard no_grad;
    parameter(*next, 0).fill_(100);
  }
  sum.backward();
  EXPECT_TRUE(at::allclose(x.grad(), expected));
  EXPECT_TRUE(parameter(*old, 0).grad().defined());
  EXPECT_FALSE(parameter(*next, 0).grad().defined());
}

TEST(AnotherVersion, SharesTheBuffers) {
  const auto old = batch_norm2d(2).second({1, "bn"});
  const auto next = old->another_version();
  const at::Tensor x = at::randn({8, 2, 3, 3}) + 5;
  (void)next->forward({x}, {});
  // momentum 0.1: 0.9 * 0 + 0.1 * mean
  EXPECT_TRUE(at::allclose(old->buffers()[0].tensor, 0.1 * x.mean({0, 2, 3}), 1e-4, 1e-6));
}

TEST(AnotherVersion, KeepsTheTies) {
  ModelBuilder b("tied");
  const InputRef tokens = b.input("tokens", {4}, at::kLong), target = b.input("target", {4}, at::kLong);
  const InputRef x = b.add("embed", embedding(11, 6), {tokens});
  LinearOptions options;
  options.bias = false;
  const InputRef y = b.add("head", linear(6, 11, options), {x});
  b.tie(x, "weight", y, "weight");
  const Model model = b.finish(b.add("loss", cross_entropy(), {y, target}), y, target);
  const Layers layers = create_layers(model, 1);
  const Layers others = another_version(model, layers);
  for (const Layers* version : {&layers, &others})
    EXPECT_EQ(parameter(*(*version)[0], 0).unsafeGetTensorImpl(), parameter(*(*version)[1], 0).unsafeGetTensorImpl());
  EXPECT_NE(parameter(*layers[0], 0).unsafeGetTensorImpl(), parameter(*others[0], 0).unsafeGetTensorImpl());
  EXPECT_EQ(distinct_parameters(model, layers).size(), 1U);
}

TEST(BatchNorm, RunningStatisticsStayInRecomputationAndEvaluation) {
  const auto layer = batch_norm2d(2).second({1, "bn"});
  const at::Tensor x = at::randn({8, 2, 3, 3}) + 5;
  ForwardContext recomputation;
  recomputation.update_buffers = false;
  const at::Tensor again = layer->forward({x}, recomputation)[0];
  EXPECT_EQ(layer->buffers()[0].tensor.abs().sum().item<double>(), 0);
  EXPECT_TRUE(at::equal(layer->forward({x}, {})[0], again));  // the same outputs as the forward that updates
  const at::Tensor mean = layer->buffers()[0].tensor.clone();
  ForwardContext evaluation;
  evaluation.training = false;
  (void)layer->forward({x}, evaluation);
  EXPECT_TRUE(at::equal(layer->buffers()[0].tensor, mean));
}

Model two_layers(bool dead) {
  ModelBuilder b("net");
  const InputRef x = b.input("image", {3}), target = b.input("target", {}, at::kLong);
  if (dead) (void)b.add("dead", relu(), {x});
  const InputRef y = b.add("fc", linear(3, 2), {x});
  return b.finish(b.add("loss", cross_entropy(), {y, target}), y, target);
}

TEST(Validate, RefusesWhatAUserCanGetWrong) {
  EXPECT_NO_THROW(two_layers(false));
  EXPECT_THROW(two_layers(true), UsageError);
  Model model = two_layers(false);
  model.nodes[1].name = "fc";
  EXPECT_THROW(validate(model), UsageError);
  model.nodes[1].name = "";
  EXPECT_THROW(validate(model), UsageError);
  model = two_layers(false);
  model.loss = -1;
  EXPECT_THROW(validate(model), UsageError);
  model = two_layers(false);
  model.nodes[0].inputs[0] = {1, 0};
  EXPECT_THROW(validate(model), InternalError);
  model = two_layers(false);
  model.nodes[1].inputs[0] = {0, 1};
  EXPECT_THROW(validate(model), InternalError);
  model = two_layers(false);
  model.ties = {{{{0, "weight"}, {1, "none"}}}};
  EXPECT_THROW(create_layers(model, 1), UsageError);
  EXPECT_THROW(validate(Model{}), UsageError);
}

}  // namespace
}  // namespace pipedream
