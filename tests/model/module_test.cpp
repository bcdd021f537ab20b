#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "pipedream/core/error.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/model/torch_module_layer.hpp"

namespace pipedream {
namespace {

// A user's own module: two inputs, two outputs, a buffer that counts forwards.
struct TwoWays : torch::nn::Module {
  explicit TwoWays(std::int64_t width) : fc(register_module("fc", torch::nn::Linear(width, width))) {
    calls = register_buffer("calls", at::zeros({1}));
  }
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    if (is_training()) calls += 1;
    return {fc->forward(x) + y, x * y};
  }
  torch::nn::Linear fc;
  at::Tensor calls;
};

struct WithContext : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) { return x * dropout_mask(x.sizes(), 0.5, 3, context); }
};

TEST(ModuleLayerTest, RunsModulesWithSeveralInputsAndOutputs) {
  const auto layer = module<TwoWays>(std::int64_t{4}).second({1, "two"});
  const at::Tensor x = at::randn({2, 4}), y = at::randn({2, 4});
  const Tensors outputs = layer->forward({x, y}, {});
  ASSERT_EQ(outputs.size(), 2U);
  const at::Tensor weight = layer->parameters()[0].tensor, bias = layer->parameters()[1].tensor;
  EXPECT_EQ(layer->parameters()[0].name, "fc.weight");
  EXPECT_TRUE(at::allclose(outputs[0], at::linear(x, weight, bias) + y));
  EXPECT_THROW(layer->forward({x}, {}), UsageError);
}

TEST(ModuleLayerTest, PassesTheContextOn) {
  const auto layer = module<WithContext>().second({1, "context"});
  ForwardContext context;
  context.seed = 4;
  const at::Tensor x = at::ones({2, 64});
  EXPECT_TRUE(at::equal(layer->forward({x}, context)[0], dropout_mask({2, 64}, 0.5, 3, context)));
}

TEST(ModuleLayerTest, InitialWeightsDependOnSeedAndNameOnly) {
  const LayerFactory factory = module<torch::nn::LinearImpl>(6, 5).second;
  const auto first = factory({1, "a"});
  const at::Tensor drawn = at::randn({3});
  const auto again = factory({1, "a"});
  EXPECT_TRUE(at::equal(first->parameters()[0].tensor, again->parameters()[0].tensor));
  EXPECT_FALSE(at::equal(first->parameters()[0].tensor, factory({1, "b"})->parameters()[0].tensor));
  EXPECT_FALSE(at::equal(first->parameters()[0].tensor, factory({2, "a"})->parameters()[0].tensor));
  EXPECT_FALSE(at::equal(drawn, at::randn({3})));  // the user's own stream goes on where it was
}

TEST(ModuleLayerTest, AnotherVersionHasItsOwnWeightsAndTheSameBuffers) {
  const auto old = module<TwoWays>(std::int64_t{4}).second({1, "two"});
  {
    const c10::NoGradGuard no_grad;
    old->parameters()[0].tensor.fill_(2);
  }
  const auto next = old->another_version();
  EXPECT_TRUE(at::equal(next->parameters()[0].tensor, at::full({4, 4}, 2.0)));
  const at::Tensor x = at::randn({2, 4}).requires_grad_();
  const at::Tensor sum = old->forward({x, at::zeros({2, 4})}, {})[0].sum();
  {
    const c10::NoGradGuard no_grad;
    next->parameters()[0].tensor.fill_(100);
  }
  sum.backward();
  EXPECT_TRUE(at::allclose(x.grad(), at::full({2, 4}, 8.0)));  // four rows of weight 2
  (void)next->forward({x, x}, {});
  EXPECT_EQ(old->buffers()[0].tensor.item<float>(), 2);  // one call of each version
}

TEST(ModuleLayerTest, BuffersStayInRecomputation) {
  const auto layer = module<torch::nn::BatchNorm2dImpl>(2).second({1, "bn"});
  const at::Tensor x = (at::randn({8, 2, 3, 3}) + 5).requires_grad_();
  ForwardContext recomputation;
  recomputation.update_buffers = false;
  const at::Tensor sum = layer->forward({x}, recomputation)[0].pow(3).sum();
  EXPECT_EQ(layer->buffers()[0].name, "running_mean");
  EXPECT_EQ(layer->buffers()[0].tensor.abs().sum().item<double>(), 0);
  EXPECT_NO_THROW(sum.backward());
}

TEST(ModuleLayerTest, TiesTorchModules) {
  ModelBuilder b("tied");
  const InputRef x = b.input("x", {4}), target = b.input("target", {}, at::kLong);
  const InputRef y = b.add("a", module<torch::nn::LinearImpl>(4, 4), {x});
  const InputRef z = b.add("b", module<torch::nn::LinearImpl>(4, 4), {y});
  b.tie(y, "weight", z, "weight");
  const Model model = b.finish(b.add("loss", cross_entropy(), {z, target}), z, target);
  const Layers layers = create_layers(model, 1);
  EXPECT_EQ(distinct_parameters(model, layers).size(), 3U);  // one weight, two biases
  run(model, layers, {at::randn({2, 4}), at::zeros({2}, at::kLong)}, {}).loss.backward();
  const at::Tensor shared = layers[0]->parameters()[0].tensor;
  const at::Tensor tied_gradient = shared.grad().clone();
  // Untied, with equal values, the two gradients add up to the tied one.
  Model untied = model;
  untied.ties.clear();
  const Layers apart = create_layers(untied, 1);
  {
    const c10::NoGradGuard no_grad;
    apart[1]->parameters()[0].tensor.copy_(shared);
  }
  const Tensors inputs = {at::randn({2, 4}), at::zeros({2}, at::kLong)};
  shared.mutable_grad() = at::Tensor();
  run(model, layers, inputs, {}).loss.backward();
  run(untied, apart, inputs, {}).loss.backward();
  EXPECT_TRUE(at::allclose(shared.grad(), apart[0]->parameters()[0].tensor.grad() + apart[1]->parameters()[0].tensor.grad()));
}

TEST(ModuleLayerTest, ATieThatCannotBeMadeSaysHowTo) {
  const auto layer = module<TwoWays>(std::int64_t{4}).second({1, "two"});
  EXPECT_THROW(layer->set_parameter(0, at::zeros({4, 4}).requires_grad_()), UsageError);
}

}  // namespace
}  // namespace pipedream
