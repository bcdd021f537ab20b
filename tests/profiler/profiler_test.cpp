#include "pipedream/profiler/profiler.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "pipedream/core/error.hpp"
#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

using testing::ElementsAre;

constexpr int kRows = 4;
const std::vector<std::uint64_t> kKeys = {1, 2, 3, 4};

ProfilerOptions quick(int copies = 1) {
  ProfilerOptions options;
  options.iterations = 2;
  options.warm_up = 1;
  options.copies = copies;
  return options;
}

Measurement measure_images(const Model& model, const ProfilerOptions& options) {
  std::vector<std::int64_t> shape = model.inputs[0].shape;
  shape.insert(shape.begin(), kRows);
  return measure(model, {at::randn(shape), at::zeros({kRows}, at::kLong)}, kKeys, options);
}

Model tiny_mlp() { return make_model("mlp:layers=2,width=16,dropout=0.5", {{1, 4, 4}, 3, 0}); }

const LayerProfile& layer_of(const Measurement& measurement, const std::string& name) {
  return measurement.profile.layers.at(static_cast<std::size_t>(find_layer(measurement.profile, name).value()));
}

// Rows of 4 bytes: hidden 4 * 16 * 4 = 256, logits 4 * 3 * 4 = 48.
TEST(Profiler, BytesOfATinyModelByHand) {
  const Measurement m = measure_images(tiny_mlp(), quick());
  EXPECT_THAT(layer_of(m, "fc1").output_bytes, ElementsAre(256));
  EXPECT_THAT(layer_of(m, "head").output_bytes, ElementsAre(48));
  EXPECT_THAT(layer_of(m, "loss").output_bytes, ElementsAre(4));
  EXPECT_EQ(layer_of(m, "fc1").parameter_bytes, (16 * 16 + 16) * 4);
  EXPECT_EQ(layer_of(m, "relu1").parameter_bytes, 0);
  EXPECT_EQ(layer_of(m, "fc1").stashed_bytes, 0);            // relu keeps its own result, not its input
  EXPECT_EQ(layer_of(m, "relu1").stashed_bytes, 256);        // its result
  EXPECT_EQ(layer_of(m, "dropout1").stashed_bytes, 512);     // the mask, and the product, which fc2 reads
  EXPECT_EQ(layer_of(m, "head").stashed_bytes, 0);           // the logarithm of the softmax is kept instead
  EXPECT_EQ(layer_of(m, "loss").stashed_bytes, 48 + 4 + 4);  // logarithms, total weight of the targets, the loss
}

TEST(Profiler, EdgesFollowTheModel) {
  const Model model = make_model("resnet18:width=4", {{1, 8, 8}, 3, 0});
  const Measurement m = measure_images(model, quick());
  EXPECT_EQ(m.profile.micro_batch, kRows);
  EXPECT_EQ(m.profile.layers.size(), model.nodes.size());
  std::size_t edges = 0;
  for (const LayerNode& node : model.nodes)
    edges += static_cast<std::size_t>(std::count_if(node.inputs.begin(), node.inputs.end(), [](InputRef ref) { return !ref.is_model_input(); }));
  EXPECT_EQ(m.profile.edges.size(), edges);
  EXPECT_NO_THROW(validate(m.profile, "profile"));
  EXPECT_EQ(profile_from_json(profile_to_json(m.profile), "profile"), m.profile);
}

TEST(Profiler, TimesAreThereAndAddUp) {
  const Measurement m = measure_images(tiny_mlp(), quick(2));
  EXPECT_EQ(m.iterations, 4);  // two of each copy
  ASSERT_EQ(m.spread.size(), m.profile.layers.size());
  for (const LayerProfile& layer : m.profile.layers) {
    EXPECT_GT(layer.forward_ms, 0) << layer.name;
    if (layer.name != "flatten") {
      EXPECT_GT(layer.backward_ms, 0) << layer.name;
    }
    EXPECT_DOUBLE_EQ(*layer.backward_input_ms + *layer.backward_weight_ms, layer.backward_ms) << layer.name;
  }
  EXPECT_EQ(layer_of(m, "relu1").backward_weight_ms, 0);
  EXPECT_EQ(layer_of(m, "fc1").backward_input_ms, 0);  // the image wants no gradient
  EXPECT_GT(*layer_of(m, "fc2").backward_input_ms, 0);
  EXPECT_EQ(layer_of(m, "flatten").backward_ms, 0);
}

TEST(Profiler, TiesAndUpdatesAreReported) {
  const Model model = make_model("gpt:blocks=1,width=8,heads=2,context=4,vocabulary=11,tied=1", {});
  ProfilerOptions options = quick();
  options.optimizer = "sgd";
  std::atomic<int> steps = 0;
  options.make_update = [&](const std::vector<at::Tensor>&) -> LayerUpdate {
    return [&](const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients) {
      ++steps;
      for (std::size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(parameters[i].sizes(), gradients.at(i).sizes());
    };
  };
  const at::Tensor tokens = at::zeros({kRows, 4}, at::kLong);
  const Measurement m = measure(model, {tokens, tokens}, kKeys, options);
  ASSERT_EQ(m.profile.ties.size(), 1U);
  EXPECT_THAT(m.profile.ties[0].layers, ElementsAre(0, static_cast<int>(model.nodes.size()) - 2));
  EXPECT_EQ(m.profile.ties[0].bytes, 11 * 8 * 4);
  EXPECT_EQ(m.profile.optimizer, "sgd");
  EXPECT_GT(layer_of(m, "ln_f").update_ms, 0);
  const auto trained =
      std::count_if(m.profile.layers.begin(), m.profile.layers.end(), [](const LayerProfile& layer) { return layer.parameter_bytes > 0; });
  EXPECT_EQ(steps, 3 * trained);  // one of warm-up, two measured
  EXPECT_EQ(layer_of(m, "h.0.mlp.gelu").update_ms, 0);
}

// A model that waits where it is told to: the only way to know what a layer should be measured as.
Model sleeper(double forward_ms) {
  ModelBuilder b("sleeper");
  const InputRef x = b.input("image", {4}), target = b.input("target", {}, at::kLong);
  InputRef y = b.add("fc", linear(4, 3), {x});
  y = b.add("same", dropout(0), {y});  // gives its input back as it is
  y = b.add("sleep", function("Sleep()", std::function<at::Tensor(const Tensors&)>([forward_ms](const Tensors& inputs) {
                                at::Tensor output = inputs.at(0) * 1;
                                output.register_hook([forward_ms](const at::Tensor&) {
                                  std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(2 * forward_ms));
                                });
                                std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(forward_ms));
                                return output;
                              })),
            {y});
  y = b.add("same2", dropout(0), {y});
  return b.finish(b.add("loss", cross_entropy(), {y, target}), y, target);
}

TEST(Profiler, GivesTimeToTheLayerThatTookIt) {
  ProfilerOptions options = quick();
  options.iterations = 5;  // a median of five is not moved by two stalls of the machine
  const Measurement m = measure_images(sleeper(20), options);
  EXPECT_GE(layer_of(m, "sleep").forward_ms, 20);
  for (const LayerProfile& layer : m.profile.layers)
    if (layer.name != "sleep") {
      EXPECT_LT(layer.forward_ms, layer_of(m, "sleep").forward_ms) << layer.name;
    }
  double rest = 0;
  for (const LayerProfile& layer : m.profile.layers) rest += layer.name == "sleep" || layer.name == "same2" ? 0 : layer.backward_ms;
  // The hook that sleeps runs as the gradient of "sleep" arrives, before or after the one that takes the time.
  EXPECT_GE(layer_of(m, "sleep").backward_ms + layer_of(m, "same2").backward_ms, 40);
  EXPECT_LT(rest, 40);
}

TEST(Profiler, RefusesALossThatIsNoNumber) {
  ModelBuilder b("broken");
  const InputRef x = b.input("image", {4}), target = b.input("target", {}, at::kLong);
  const InputRef y = b.add("fc", linear(4, 3), {x});
  const auto nan = function("Nan()", std::function<at::Tensor(const Tensors&)>([](const Tensors& inputs) { return inputs.at(0) * std::nan(""); }));
  const InputRef z = b.add("nan", nan, {y});
  const Model model = b.finish(b.add("loss", cross_entropy(), {z, target}), z, target);
  EXPECT_THROW(measure_images(model, quick()), UsageError);
  EXPECT_THROW(measure_images(model, quick(2)), UsageError);  // no copy is left waiting
  ProfilerOptions none = quick();
  none.iterations = 0;
  EXPECT_THROW(measure_images(tiny_mlp(), none), UsageError);
}

// The iterations without gradients of weights must not leave their mark on the others: every layer's weights have a gradient each time.
TEST(Profiler, EveryUpdateSeesGradients) {
  ProfilerOptions options = quick(2);
  std::atomic<int> missing = 0;
  options.make_update = [&](const std::vector<at::Tensor>&) -> LayerUpdate {
    return [&](const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients) {
      for (std::size_t i = 0; i < parameters.size(); ++i) missing += gradients.at(i).defined() && parameters[i].requires_grad() ? 0 : 1;
    };
  };
  (void)measure_images(tiny_mlp(), options);
  EXPECT_EQ(missing, 0);
}

}  // namespace
}  // namespace pipedream
