#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "pipedream/model/layers.hpp"

namespace pipedream {
namespace {

at::Tensor run_layer(const LayerRecipe& recipe, const Tensors& inputs) { return recipe.second({1, "layer"})->forward(inputs, {})[0]; }

// Position by position, head by head, in doubles.
at::Tensor slow_attention(const at::Tensor& qkv, std::int64_t heads) {
  const std::int64_t length = qkv.size(1), width = qkv.size(2) / 3, head = width / heads;
  at::Tensor result = at::zeros({qkv.size(0), length, width}, at::kDouble);
  for (std::int64_t b = 0; b < qkv.size(0); ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t t = 0; t < length; ++t) {
        const auto part = [&](std::int64_t kind, std::int64_t position) {
          const std::int64_t begin = kind * width + h * head;
          return qkv[b][position].slice(0, begin, begin + head).to(at::kDouble);
        };
        at::Tensor total = at::zeros({head}, at::kDouble);
        double norm = 0;
        for (std::int64_t s = 0; s <= t; ++s) {
          const double weight = std::exp(part(0, t).dot(part(1, s)).item<double>() / std::sqrt(static_cast<double>(head)));
          total += weight * part(2, s);
          norm += weight;
        }
        result[b][t].slice(0, h * head, (h + 1) * head).copy_(total / norm);
      }
  return result;
}

TEST(Attention, EqualsTheDefinition) {
  const at::Tensor qkv = at::randn({2, 5, 3 * 8});
  EXPECT_TRUE(at::allclose(run_layer(causal_attention(8, 2), {qkv}).to(at::kDouble), slow_attention(qkv, 2), 1e-4, 1e-5));
}

TEST(Attention, DoesNotLookAhead) {
  at::Tensor qkv = at::randn({1, 6, 3 * 4});
  const at::Tensor before = run_layer(causal_attention(4, 2), {qkv});
  qkv.slice(1, 4, 6).fill_(9);
  const at::Tensor after = run_layer(causal_attention(4, 2), {qkv});
  EXPECT_TRUE(at::equal(before.slice(1, 0, 4), after.slice(1, 0, 4)));
  EXPECT_FALSE(at::equal(before, after));
}

TEST(CrossEntropyLayer, IsTheMeanOverRowsAndPositions) {
  // Uniform logits over 4 classes: log 4, whatever the target.
  EXPECT_NEAR(run_layer(cross_entropy(), {at::zeros({3, 4}), at::zeros({3}, at::kLong)}).item<double>(), std::log(4.0), 1e-6);
  EXPECT_NEAR(run_layer(cross_entropy(), {at::zeros({2, 3, 4}), at::ones({2, 3}, at::kLong)}).item<double>(), std::log(4.0), 1e-6);
  // Logits (1, 0), target 0: log(1 + e^-1); target 1: log(1 + e). Mean of the two.
  const at::Tensor logits = at::tensor({1.0F, 0.0F, 1.0F, 0.0F}).view({2, 2});
  const double expected = (std::log(1 + std::exp(-1.0)) + std::log(1 + std::exp(1.0))) / 2;
  EXPECT_NEAR(run_layer(cross_entropy(), {logits, at::tensor({0, 1}, at::kLong)}).item<double>(), expected, 1e-6);
}

TEST(MaxPool, EqualsThatOfTorchWithItsGradient) {
  for (const auto& shape : std::vector<std::vector<std::int64_t>>{{2, 3, 8, 8}, {1, 2, 7, 5}, {3, 1, 2, 2}, {2, 2, 33, 64}}) {
    // Few different values, so that equal ones meet often: the first must win.
    const at::Tensor image = at::randint(-3, 3, shape).to(at::kFloat);
    const at::Tensor ours = image.clone().requires_grad_(), theirs = image.clone().requires_grad_();
    const at::Tensor a = run_layer(max_pool2d(2, 2), {ours}), b = at::max_pool2d(theirs, 2, 2);
    EXPECT_TRUE(at::equal(a, b));
    const at::Tensor weights = at::randn(a.sizes());
    (a * weights).sum().backward();
    (b * weights).sum().backward();
    EXPECT_TRUE(at::equal(ours.grad(), theirs.grad()));
  }
}

TEST(MaxPool, KeepsWhatIsNoNumber) {
  for (std::int64_t i = 0; i < 4; ++i) {
    at::Tensor image = at::zeros({1, 1, 2, 2});
    image.view({4})[i] = std::nan("");
    EXPECT_TRUE(run_layer(max_pool2d(2, 2), {image}).isnan().all().item<bool>());
  }
}

TEST(MaxPool, TakesOtherKernelsAndLayouts) {
  const at::Tensor image = at::randn({2, 3, 9, 9});
  EXPECT_TRUE(at::equal(run_layer(max_pool2d(3, 2, 1), {image}), at::max_pool2d(image, 3, 2, 1)));
  const at::Tensor turned = image.transpose(2, 3);
  EXPECT_TRUE(at::equal(run_layer(max_pool2d(2, 2), {turned}), at::max_pool2d(turned, 2, 2)));
}

TEST(Layers, DoNotChangeTheirInputs) {
  const at::Tensor image = at::randn({2, 3, 8, 8}), hidden = at::randn({2, 4, 12});
  const std::vector<std::pair<LayerRecipe, at::Tensor>> cases = {{relu(), image},
                                                                 {gelu(), image},
                                                                 {max_pool2d(2, 2), image},
                                                                 {avg_pool2d(2, 2), image},
                                                                 {adaptive_avg_pool2d(1), image},
                                                                 {flatten(), image},
                                                                 {dropout(0.5), image},
                                                                 {batch_norm2d(3), image},
                                                                 {conv2d(3, 4, 3), image},
                                                                 {layer_norm(12), hidden},
                                                                 {linear(12, 5), hidden},
                                                                 {add_positions(4, 12), hidden},
                                                                 {causal_attention(4, 2), hidden}};
  for (const auto& [recipe, input] : cases) {
    const at::Tensor copy = input.clone();
    const auto version = input._version();
    (void)run_layer(recipe, {input});
    EXPECT_TRUE(at::equal(copy, input)) << recipe.first;
    EXPECT_EQ(input._version(), version) << recipe.first;
  }
}

TEST(Layers, SumAndConcatenationTakeAnyNumberOfInputs) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_TRUE(at::equal(run_layer(add(), {x, x, x}), 3 * x));
  EXPECT_EQ(run_layer(concat(1), {x, x, x}).sizes(), at::IntArrayRef({2, 9}));
}

TEST(Layers, DescriptionsReadLikeTorch) {
  ConvOptions options;
  options.stride = 2;
  options.bias = false;
  EXPECT_EQ(conv2d(3, 64, 7, options).first, "Conv2d(3, 64, kernel_size=7, stride=2, bias=False)");
  EXPECT_EQ(linear(784, 10).first, "Linear(784, 10)");
  EXPECT_EQ(max_pool2d(3, 2, 1).first, "MaxPool2d(kernel_size=3, stride=2, padding=1)");
}

}  // namespace
}  // namespace pipedream
