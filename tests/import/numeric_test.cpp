#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"
#include "reference.hpp"

namespace pipedream {
namespace {

using testing::difference;
using testing::equal_bits;
using testing::fixture;
using testing::inputs_of;
using testing::load_reference;
using testing::Reference;
using testing::run_detached;
using testing::run_whole;
using testing::Step;

Model load(const std::string& name, const std::string& granularity = "leaf") {
  ImportOptions options;
  options.granularity = parse_granularity(granularity);
  return import_model(fixture(name + ".pt2"), options);
}

/// Gradients of the reference in a mode, under the first key of tied parameters.
std::map<std::string, at::Tensor> gradients_of(const Reference& reference, const std::string& mode) {
  std::map<std::string, at::Tensor> result;
  for (const auto& [key, value] : reference) {
    if (key.starts_with(mode + ".") && key != mode + ".loss") result.emplace(key.substr(mode.size() + 1), value);
  }
  return result;
}

ForwardContext context_of(bool training) {
  ForwardContext context;
  context.training = training;
  context.update_buffers = training;
  context.seed = 7;
  return context;
}

class Numeric : public ::testing::TestWithParam<std::string> {};

TEST_P(Numeric, EqualsPyTorchWholeAndLayeredAtEveryGranularity) {
  const Reference reference = load_reference(GetParam());
  for (const bool training : {true, false}) {
    const std::string mode = training ? "train" : "eval";
    if (!reference.contains(mode + ".loss")) continue;
    std::optional<Step> first;
    for (const char* granularity : {"block:0", "leaf", "block:1", "node"}) {
      SCOPED_TRACE(mode + " " + granularity);
      const Model model = load(GetParam(), granularity);
      const Layers layers = create_layers(model, 0);
      if (!training && reference.contains("train.loss")) {  // the reference evaluates after a training step
        (void)run_whole(model, layers, inputs_of(model, reference), context_of(true));
      }
      const Step whole = run_whole(model, layers, inputs_of(model, reference), context_of(training));
      EXPECT_NEAR(whole.loss.item<float>(), reference.at(mode + ".loss").item<float>(), 2e-6);
      EXPECT_LT(difference(whole.gradients, gradients_of(reference, mode)), 1e-5);
      EXPECT_EQ(whole.gradients.size(), gradients_of(reference, mode).size());
      if (training) {
        for (const NamedTensor& entry : state_dict(model, layers)) {
          if (!reference.contains("after." + entry.name)) continue;
          const at::Tensor expected = reference.at("after." + entry.name);
          EXPECT_TRUE(at::allclose(entry.tensor.reshape(-1).to(at::kFloat), expected.to(at::kFloat), 1e-5, 1e-6)) << entry.name;
        }
      }
      const Layers others = create_layers(model, 0);
      if (!training && reference.contains("train.loss")) (void)run_whole(model, others, inputs_of(model, reference), context_of(true));
      const Step detached = run_detached(model, others, inputs_of(model, reference), context_of(training));
      EXPECT_TRUE(detached.loss.equal(whole.loss));
      EXPECT_LT(difference(detached.gradients, whole.gradients), 1e-6);  // sums over several readers may be taken in another order
      if (!first) first = whole;
      EXPECT_TRUE(whole.loss.equal(first->loss));
      EXPECT_LT(difference(whole.gradients, first->gradients), 1e-6);
    }
  }
}

TEST_P(Numeric, RunsBatchesOfOtherSizes) {
  const Reference reference = load_reference(GetParam());
  const Model model = load(GetParam());
  const Layers layers = create_layers(model, 0);
  for (const std::int64_t batch : {1, 2, 5}) {
    Tensors inputs = inputs_of(model, reference);
    for (at::Tensor& input : inputs) input = at::cat({input, input}).narrow(0, 0, batch).contiguous();
    if (GetParam() == "lstm_static") {
      EXPECT_THROW((void)run_whole(model, layers, inputs, context_of(false)), UsageError);
      continue;
    }
    const Step step = run_whole(model, layers, inputs, context_of(false));
    EXPECT_TRUE(std::isfinite(step.loss.item<float>())) << batch;
    if (batch < 2) continue;
    // A batch of equal halves has the loss of one half.
    for (at::Tensor& input : inputs) input = at::cat({input, input});
    EXPECT_NEAR(run_whole(model, layers, inputs, context_of(false)).loss.item<float>(), step.loss.item<float>(), 1e-5);
  }
}

TEST_P(Numeric, TwoVersionsInFlightDoNotTouchEachOther) {
  const Reference reference = load_reference(GetParam());
  const Model model = load(GetParam());
  const Layers first = create_layers(model, 0);
  const Layers second = another_version(model, first);
  const ForwardContext context = context_of(false);
  const Tensors inputs = inputs_of(model, reference);
  const Step alone = run_whole(model, first, inputs, context);
  {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& parameter : distinct_parameters(model, second)) parameter.tensor.mul_(1.5);
  }
  // forward of the first version, forward and backward of the second, backward of the first
  for (const NamedTensor& parameter : distinct_parameters(model, first)) parameter.tensor.mutable_grad() = at::Tensor();
  const at::Tensor loss = run(model, first, inputs, context).loss;
  const Step other = run_whole(model, second, inputs, context);
  loss.backward();
  EXPECT_TRUE(loss.equal(alone.loss));
  EXPECT_FALSE(other.loss.equal(alone.loss));
  for (const StateEntry& entry : model.state) {
    if (entry.layer < 0 || !alone.gradients.contains(entry.key)) continue;
    for (const NamedTensor& parameter : first[static_cast<std::size_t>(entry.layer)]->parameters()) {
      if (parameter.name != entry.tensor) continue;
      EXPECT_TRUE(parameter.tensor.grad().equal(alone.gradients.at(entry.key))) << entry.key;
    }
  }
}

TEST_P(Numeric, ExportsWhatItImported) {
  const Model model = load(GetParam());
  const Layers layers = create_layers(model, 0);
  const std::vector<NamedTensor> state = state_dict(model, layers);
  const Layers fresh = create_layers(model, 1);
  {
    const c10::NoGradGuard no_grad;
    for (const NamedTensor& parameter : distinct_parameters(model, fresh)) parameter.tensor.zero_();
  }
  load_state_dict(model, fresh, state, "test");
  const std::vector<NamedTensor> again = state_dict(model, fresh);
  ASSERT_EQ(again.size(), state.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    EXPECT_EQ(again[i].name, state[i].name);
    EXPECT_TRUE(again[i].tensor.equal(state[i].tensor)) << state[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Numeric,
                         ::testing::Values("mlp", "dropout_in_place", "cnn", "cnn_static", "cnn_channels_last", "lstm", "lstm_static", "gru",
                                           "encoder", "gpt", "gpt_no_dropout", "with_loss", "stochastic_depth", "views", "sequence_first"),
                         [](const auto& fixture_of) { return fixture_of.param; });

/// Dropout masks of a step are functions of (seed, step, sample).
class Randomness : public ::testing::TestWithParam<std::string> {};

Step train_step(const std::string& name, const std::string& granularity, const std::vector<std::uint64_t>& keys, std::int64_t start,
                std::int64_t count, std::uint64_t seed) {
  const Reference reference = load_reference(name);
  const Model model = load(name, granularity);
  ForwardContext context = context_of(true);
  const std::vector<std::uint64_t> samples(keys.begin() + start, keys.begin() + start + count);
  context.samples = &samples;
  context.seed = seed;
  Tensors inputs = inputs_of(model, reference);
  for (at::Tensor& input : inputs) input = input.narrow(0, start, count).contiguous();
  return run_detached(model, create_layers(model, 0), inputs, context);
}

TEST_P(Randomness, DoesNotDependOnTheCut) {
  const std::vector<std::uint64_t> keys{11, 22, 33};
  const Step leaf = train_step(GetParam(), "leaf", keys, 0, 3, 5);
  for (const char* granularity : {"block:0", "block:1", "node"}) {
    const Step other = train_step(GetParam(), granularity, keys, 0, 3, 5);
    EXPECT_TRUE(other.loss.equal(leaf.loss)) << granularity;
    EXPECT_LT(difference(other.gradients, leaf.gradients), 1e-6);
  }
  EXPECT_FALSE(train_step(GetParam(), "leaf", keys, 0, 3, 6).loss.equal(leaf.loss));
  EXPECT_FALSE(train_step(GetParam(), "leaf", {11, 22, 44}, 0, 3, 5).loss.equal(leaf.loss));
}

TEST_P(Randomness, DoesNotDependOnTheMicroBatch) {
  const std::vector<std::uint64_t> keys{11, 22, 33};
  const Step whole = train_step(GetParam(), "leaf", keys, 0, 3, 5);
  double loss = 0;
  for (std::int64_t i = 0; i < 3; ++i) loss += train_step(GetParam(), "leaf", keys, i, 1, 5).loss.item<double>() / 3;
  EXPECT_NEAR(loss, whole.loss.item<double>(), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Randomness,
                         ::testing::Values("mlp", "dropout_in_place", "lstm", "encoder", "gpt", "stochastic_depth", "sequence_first"),
                         [](const auto& fixture_of) { return fixture_of.param; });

TEST(Import, EvaluationOfATrainingExportEqualsAnEvaluationExport) {
  const Model training = load("cnn");
  ImportOptions options;
  options.frozen_statistics = true;
  const Model evaluation = import_model(fixture("cnn_eval.pt2"), options);
  const Layers layers = create_layers(training, 0), others = create_layers(evaluation, 0);
  load_state_dict(evaluation, others, state_dict(training, layers), "test");
  const Tensors inputs = inputs_of(training, load_reference("cnn"));
  EXPECT_TRUE(equal_bits(run_whole(training, layers, inputs, context_of(false)), run_whole(evaluation, others, inputs, context_of(false))));
}

TEST(Import, RecomputationLeavesStatisticsAlone) {
  const Model model = load("cnn");
  const Layers layers = create_layers(model, 0);
  const Tensors inputs = inputs_of(model, load_reference("cnn"));
  std::vector<at::Tensor> before;
  for (const NamedTensor& entry : state_dict(model, layers)) before.push_back(entry.tensor.clone());
  ForwardContext context = context_of(true);
  const at::Tensor loss = run(model, layers, inputs, context).loss;
  std::vector<at::Tensor> after;
  for (const NamedTensor& entry : state_dict(model, layers)) after.push_back(entry.tensor.clone());
  context.update_buffers = false;
  EXPECT_TRUE(run(model, layers, inputs, context).loss.equal(loss));
  const std::vector<NamedTensor> now = state_dict(model, layers);
  bool changed = false;
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_TRUE(now[i].tensor.equal(after[i])) << now[i].name;
    changed = changed || !before[i].equal(after[i]);
  }
  EXPECT_TRUE(changed);
}

TEST(Import, VersionsShareStatisticsAndInstancesDoNot) {
  const Model model = load("cnn");
  const Layers layers = create_layers(model, 0), versions = another_version(model, layers), others = create_layers(model, 0);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto own = layers[i]->buffers(), shared = versions[i]->buffers(), separate = others[i]->buffers();
    for (std::size_t k = 0; k < own.size(); ++k) {
      EXPECT_EQ(own[k].tensor.data_ptr(), shared[k].tensor.data_ptr());
      EXPECT_NE(own[k].tensor.data_ptr(), separate[k].tensor.data_ptr());
    }
  }
}

TEST(Import, TiedParametersAreOne) {
  const Model model = load("gpt");
  ASSERT_EQ(model.ties.size(), 1U);
  ASSERT_EQ(model.ties[0].places.size(), 2U);
  EXPECT_EQ(model.nodes[static_cast<std::size_t>(model.ties[0].places[0].layer)].name, "wte");
  EXPECT_EQ(model.nodes[static_cast<std::size_t>(model.ties[0].places[1].layer)].name, "lm_head");
  const Layers layers = create_layers(model, 0);
  std::size_t keys = 0;
  at::Tensor first;
  for (const NamedTensor& entry : state_dict(model, layers)) {
    if (entry.name != "wte.weight" && entry.name != "lm_head.weight") continue;
    ++keys;
    EXPECT_TRUE(!first.defined() || first.equal(entry.tensor));
    first = entry.tensor;
  }
  EXPECT_EQ(keys, 2U);
}

TEST(Import, ALossInTheFileIsTheLossAndItsTargetTheTarget) {
  const Model model = load("with_loss");
  ASSERT_EQ(model.inputs.size(), 2U);
  EXPECT_EQ(model.inputs[1].name, "target");
  EXPECT_EQ(model.target, 1);
  EXPECT_EQ(model.nodes[static_cast<std::size_t>(model.loss)].name, "+cross_entropy_loss");
  EXPECT_EQ(model.nodes[static_cast<std::size_t>(model.prediction)].name, "out");
  // The frozen layer has no trained parameters; its weights are among the buffers.
  for (const LayerNode& node : model.nodes) {
    if (node.name != "frozen") continue;
    const auto layer = node.create({0, node.name});
    EXPECT_TRUE(layer->parameters().empty());
    EXPECT_EQ(layer->buffers().size(), 2U);
  }
}

TEST(Import, AddsLosses) {
  ImportOptions options;
  options.loss = "mse";
  const Model model = import_model(fixture("mlp.pt2"), options);
  EXPECT_EQ(model.inputs.back().shape, (std::vector<std::int64_t>{4}));
  EXPECT_EQ(model.target, -1);
  const at::Tensor x = at::ones({2, 6}), target = at::zeros({2, 4});
  const Layers layers = create_layers(model, 0);
  EXPECT_GT(run(model, layers, {x, target}, context_of(false)).loss.item<float>(), 0);
  options.loss = "bogus";
  EXPECT_THROW((void)import_model(fixture("mlp.pt2"), options), UsageError);
}

TEST(Import, WeightlessFilesAreInitialisedByClassAndSeed) {
  const Model model = load("meta_mlp");
  const auto weights = [&](std::uint64_t seed, const char* layer) {
    for (const LayerNode& node : model.nodes) {
      if (node.name == layer) return node.create({seed, node.name})->parameters().at(0).tensor;
    }
    return at::Tensor();
  };
  const at::Tensor first = weights(1, "net.0");
  EXPECT_TRUE(first.equal(weights(1, "net.0")));
  EXPECT_FALSE(first.equal(weights(2, "net.0")));
  // Linear(6, 10): uniform in +-1/sqrt(6) = +-0.408
  EXPECT_LE(first.abs().max().item<float>(), 0.4083F);
  EXPECT_GT(first.abs().max().item<float>(), 0.3F);
  // The same values whatever the cut.
  const Model block = load("meta_mlp", "block:0");
  EXPECT_TRUE(first.equal(block.nodes[0].create({1, "model"})->parameters().at(0).tensor));
}

TEST(Import, ChecksInputsBeforeAnyOperatorSeesThem) {
  const Model model = load("cnn");
  const Layers layers = create_layers(model, 0);
  EXPECT_THROW((void)run(model, layers, {at::ones({2, 4, 6, 6}), at::zeros({2}, at::kLong)}, context_of(false)), UsageError);
  EXPECT_THROW((void)run(model, layers, {at::ones({3, 6, 6}), at::zeros({2}, at::kLong)}, context_of(false)), UsageError);
}

TEST(Import, SpecsCarryOptions) {
  EXPECT_TRUE(is_model_file("m.pt2"));
  EXPECT_TRUE(is_model_file("dir/m.pt2:granularity=block"));
  EXPECT_FALSE(is_model_file("vgg11:classes=10"));
  EXPECT_EQ(import_model_spec(fixture("mlp.pt2") + ":granularity=block0").nodes.size(), 2U);
  EXPECT_THROW((void)import_model_spec(fixture("mlp.pt2") + ":granularity=blocks"), UsageError);
  EXPECT_THROW((void)import_model_spec(fixture("mlp.pt2") + ":colour=red"), UsageError);
  EXPECT_THROW((void)import_model_spec(fixture("mlp.pt2") + ":tie=a+b"), UsageError);
}

}  // namespace
}  // namespace pipedream
