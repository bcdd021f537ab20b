#include "pipedream/model/layers.hpp"

#include <ATen/ATen.h>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using Function = std::function<at::Tensor(const Tensors&)>;

// A bias is the second parameter, where there is one.
c10::optional<at::Tensor> bias_of(const LeafState& state) {
  return state.parameters.size() > 1 ? c10::make_optional(state.parameters[1]) : c10::nullopt;
}

}  // namespace

LayerRecipe linear(std::int64_t in, std::int64_t out, LinearOptions options) {
  const Initial usual = Initial::kaiming_uniform(in);
  LeafDefinition definition{{{"weight", {out, in}, options.weight_initial.value_or(usual)}}, {}, {}};
  if (options.bias) definition.parameters.push_back({"bias", {out}, options.bias_initial.value_or(usual)});
  definition.forward = [](const LeafState& state, const Tensors& inputs, const ForwardContext&) {
    return Tensors{at::linear(inputs.at(0), state.parameters[0], bias_of(state))};
  };
  return leaf(fmt::format("Linear({}, {}{})", in, out, options.bias ? "" : ", bias=False"), std::move(definition));
}

LayerRecipe conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, ConvOptions options) {
  const Initial usual = Initial::kaiming_uniform(in / options.groups * kernel * kernel);
  LeafDefinition definition{{{"weight", {out, in / options.groups, kernel, kernel}, options.weight_initial.value_or(usual)}}, {}, {}};
  if (options.bias) definition.parameters.push_back({"bias", {out}, options.bias_initial.value_or(usual)});
  definition.forward = [options](const LeafState& state, const Tensors& inputs, const ForwardContext&) {
    return Tensors{at::conv2d(inputs.at(0), state.parameters[0], bias_of(state), options.stride, options.padding, options.dilation, options.groups)};
  };
  std::string text = fmt::format("Conv2d({}, {}, kernel_size={}", in, out, kernel);
  if (options.stride != 1) text += fmt::format(", stride={}", options.stride);
  if (options.padding != 0) text += fmt::format(", padding={}", options.padding);
  if (options.dilation != 1) text += fmt::format(", dilation={}", options.dilation);
  if (options.groups != 1) text += fmt::format(", groups={}", options.groups);
  return leaf(text + (options.bias ? ")" : ", bias=False)"), std::move(definition));
}

LayerRecipe batch_norm2d(std::int64_t channels, double momentum, double epsilon) {
  LeafDefinition definition{{{"weight", {channels}, Initial::constant(1)}, {"bias", {channels}, Initial::constant(0)}},
                            {{"running_mean", {channels}, Initial::constant(0)}, {"running_var", {channels}, Initial::constant(1)}},
                            {}};
  definition.forward = [momentum, epsilon](const LeafState& state, const Tensors& inputs, const ForwardContext& context) {
    // Without running statistics the operator uses those of the micro-batch and updates nothing: a recomputation in training.
    const bool give_running = !context.training || context.update_buffers;
    const auto running = [&](std::size_t i) { return give_running ? c10::make_optional(state.buffers[i]) : c10::nullopt; };
    return Tensors{at::batch_norm(inputs.at(0), state.parameters[0], state.parameters[1], running(0), running(1), context.training, momentum, epsilon,
                                  /*cudnn_enabled=*/false)};
  };
  return leaf(fmt::format("BatchNorm2d({})", channels), std::move(definition));
}

LayerRecipe layer_norm(std::int64_t width, double epsilon) {
  LeafDefinition definition{{{"weight", {width}, Initial::constant(1)}, {"bias", {width}, Initial::constant(0)}}, {}, {}};
  definition.forward = [width, epsilon](const LeafState& state, const Tensors& inputs, const ForwardContext&) {
    return Tensors{at::layer_norm(inputs.at(0), {width}, state.parameters[0], state.parameters[1], epsilon)};
  };
  return leaf(fmt::format("LayerNorm({})", width), std::move(definition));
}

LayerRecipe embedding(std::int64_t count, std::int64_t width, Initial initial) {
  LeafDefinition definition{{{"weight", {count, width}, initial}}, {}, {}};
  definition.forward = [](const LeafState& state, const Tensors& inputs, const ForwardContext&) {
    return Tensors{at::embedding(state.parameters[0], inputs.at(0))};
  };
  return leaf(fmt::format("Embedding({}, {})", count, width), std::move(definition));
}

LayerRecipe add_positions(std::int64_t context, std::int64_t width, Initial initial) {
  LeafDefinition definition{{{"weight", {context, width}, initial}}, {}, {}};
  definition.forward = [](const LeafState& state, const Tensors& inputs, const ForwardContext&) {
    const at::Tensor& x = inputs.at(0);
    PD_CHECK(x.size(1) <= state.parameters[0].size(0), "{} positions, the longest context has {}", x.size(1), state.parameters[0].size(0));
    return Tensors{x + state.parameters[0].slice(0, 0, x.size(1))};
  };
  return leaf(fmt::format("AddPositions({}, {})", context, width), std::move(definition));
}

LayerRecipe relu() {
  return function("ReLU()", Function([](const Tensors& inputs) { return at::relu(inputs.at(0)); }));
}

LayerRecipe gelu() {
  return function("GELU()", Function([](const Tensors& inputs) { return at::gelu(inputs.at(0)); }));
}

LayerRecipe avg_pool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return function(fmt::format("AvgPool2d(kernel_size={}, stride={}{})", kernel, stride, padding ? fmt::format(", padding={}", padding) : ""),
                  Function([=](const Tensors& inputs) { return at::avg_pool2d(inputs.at(0), kernel, stride, padding); }));
}

LayerRecipe adaptive_avg_pool2d(std::int64_t size) {
  return function(fmt::format("AdaptiveAvgPool2d({})", size), Function([size](const Tensors& inputs) {
                    return at::adaptive_avg_pool2d(inputs.at(0), {size, size});
                  }));
}

LayerRecipe flatten() {
  return function("Flatten()", Function([](const Tensors& inputs) { return at::flatten(inputs.at(0), 1); }));
}

LayerRecipe add() {
  return function("Add()", Function([](const Tensors& inputs) {
                    at::Tensor sum = inputs.at(0) + inputs.at(1);
                    for (std::size_t i = 2; i < inputs.size(); ++i) sum = sum + inputs[i];
                    return sum;
                  }));
}

LayerRecipe concat(std::int64_t dimension) {
  return function(fmt::format("Concat({})", dimension), Function([dimension](const Tensors& inputs) { return at::cat(inputs, dimension); }));
}

LayerRecipe cross_entropy() {
  return function("CrossEntropy()", Function([](const Tensors& inputs) {
                    const at::Tensor& logits = inputs.at(0);
                    return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), inputs.at(1).reshape({-1}));
                  }));
}

}  // namespace pipedream
