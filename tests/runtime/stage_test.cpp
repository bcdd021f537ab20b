#include "pipedream/runtime/stage.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "support.hpp"

namespace pipedream::test {
namespace {

std::string bug_in(const std::function<void()>& run) {
  try {
    run();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<int> all_nodes(const Model& model) {
  std::vector<int> nodes;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) nodes.push_back(static_cast<int>(i));
  return nodes;
}

TEST(VersionStore, AStepNeverWritesAVersionThatSomebodyNeeds) {
  const Model model = small_mlp();
  VersionStore store(model, all_nodes(model), 1, 2);
  auto& zero = store.acquire(0);
  auto& target = store.begin_step(0, /*in_place=*/false);
  EXPECT_NE(&target, &zero);
  store.end_step(0, target);
  EXPECT_EQ(store.newest(), 1);
  // Version 0 has a micro-batch in flight and version 1 is the newest: there is no slot for version 2.
  EXPECT_THAT(bug_in([&] { (void)store.begin_step(1, false); }), testing::HasSubstr("no slot is free for weight version 2"));
  EXPECT_THAT(bug_in([&] { (void)store.begin_step(1, true); }), testing::Eq("no error"));  // in place: version 1 itself has no users
  // The backward is over, but somebody will still read version 0.
  store.release(zero);
  EXPECT_THAT(bug_in([&] { (void)store.begin_step(1, false); }), testing::HasSubstr("no slot is free"));
  store.drop(0);
  EXPECT_EQ(&store.begin_step(1, false), &zero);
  EXPECT_EQ(store.peak_versions(), 2);
}

TEST(VersionStore, ADroppedVersionCannotBeRead) {
  const Model model = small_mlp();
  VersionStore store(model, all_nodes(model), 1, 3);
  store.end_step(0, store.begin_step(0, false));
  store.drop(0);
  EXPECT_THAT(bug_in([&] { (void)store.acquire(0); }), testing::HasSubstr("weight version 0 was dropped before a forward that reads it"));
  EXPECT_THAT(bug_in([&] { (void)store.acquire(7); }), testing::HasSubstr("weight version 7 is gone; the newest is 1"));
  EXPECT_THAT(bug_in([&] { store.drop(1); }), testing::HasSubstr("the newest weight version 1 was dropped"));
}

TEST(VersionStore, SlotsShareBuffersAndNothingElse) {
  const Model model = small_residual();
  VersionStore store(model, all_nodes(model), 1, 2);
  const auto& a = store.slots()[0].layers[2]->buffers();
  const auto& b = store.slots()[1].layers[2]->buffers();
  ASSERT_FALSE(a.empty());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].tensor.data_ptr(), b[i].tensor.data_ptr());
  for (std::size_t i = 0; i < store.slots()[0].parameters.size(); ++i) {
    EXPECT_NE(store.slots()[0].parameters[i].data_ptr(), store.slots()[1].parameters[i].data_ptr());
    EXPECT_TRUE(store.slots()[0].parameters[i].equal(store.slots()[1].parameters[i]));
  }
}

/// Two stages of the MLP and one micro-batch for the first.
struct TwoStages {
  Model model = small_mlp();
  StageGraph graph;
  MicroBatchInput input;
  TwoStages() {
    const Plan plan = plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1);
    graph = cut_model(model, {plan.stages[0].layers, plan.stages[1].layers});
    const auto source = random_data(model, {2, 4, 4, 5})({});
    MicroBatchData data = source->get(0, true);
    input.model_inputs = data.inputs;
    input.samples = data.samples;
  }
};

TEST(Stage, AForwardWithoutItsActivationIsABug) {
  TwoStages two;
  Stage second(two.model, two.graph, 1, {});
  EXPECT_THAT(bug_in([&] { second.forward(0, 0, two.input, true); }),
              testing::HasSubstr("stage 1 runs micro-batch 0 without the activation from stage 0"));
}

TEST(Stage, ABackwardAssertsTheVersionOfItsForward) {
  TwoStages two;
  StageOptions options;
  options.slots = 2;
  Stage first(two.model, two.graph, 0, options);
  first.forward(0, 0, two.input, true);
  EXPECT_THAT(bug_in([&] { first.backward(0, 1, 1); }),
              testing::HasSubstr("the backward of micro-batch 0 in stage 0 wants weight version 1, its forward used 0"));
}

TEST(Stage, AStepDuringAFlightLeavesItsGradientAlone) {
  // The gradient of a micro-batch is the same whether or not the next version is written between its forward and its backward.
  std::vector<Tensors> gradients;
  for (const bool with_step : {false, true}) {
    TwoStages two;
    StageOptions options;
    options.slots = 2;
    Stage first(two.model, two.graph, 0, options);
    first.forward(0, 0, two.input, true);
    if (with_step) {
      Tensors ones;
      for (const auto& parameter : first.versions().slots()[0].parameters) ones.push_back(at::ones_like(parameter.detach()));
      first.step(0, false, ones, 0.5, 1);
      EXPECT_FALSE(first.versions().at(1).parameters[0].equal(first.versions().at(0).parameters[0]));
    }
    Tensors incoming;
    for (const auto& output : first.output_for(0, 1)) incoming.push_back(at::ones_like(output));
    first.add_output_gradient(0, 1, incoming);
    first.backward(0, 0, 1);
    gradients.push_back(first.take_gradients());
  }
  ASSERT_EQ(gradients[0].size(), gradients[1].size());
  for (std::size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << i;
}

TEST(Stage, TheTwoPartsOfABackwardGiveTheWhole) {
  for (const bool split : {false, true}) {
    static std::vector<Tensors> found;
    TwoStages two;
    StageOptions options;
    options.split_backward = split;
    Stage first(two.model, two.graph, 0, options), second(two.model, two.graph, 1, options);
    first.forward(0, 0, two.input, true);
    MicroBatchInput next = two.input;
    next.activations[0] = first.output_for(0, 1);
    second.forward(0, 0, next, true);
    second.backward(0, 0, 1);
    first.add_output_gradient(0, 1, second.input_gradient_for(0, 0));
    first.backward(0, 0, 1);
    Tensors all = first.take_gradients();
    for (auto& gradient : second.take_gradients()) all.push_back(gradient);
    found.push_back(all);
    if (found.size() < 2) continue;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(found[0][i].defined() && found[1][i].defined()) << i;
      EXPECT_TRUE(at::allclose(found[0][i], found[1][i], 1e-6, 1e-7)) << i;
    }
  }
}

TEST(CutModel, WrongCutsNameLayerAndStage) {
  const Model model = small_mlp();
  const auto error = [&](std::vector<std::vector<std::string>> stages) -> std::string {
    try {
      (void)cut_model(model, stages);
    } catch (const InputError& e) {
      return e.what();
    }
    return "no error";
  };
  std::vector<std::string> all;
  for (const auto& node : model.nodes) all.push_back(node.name);
  EXPECT_EQ(error({all}), "no error");
  EXPECT_EQ(error({all, {}}), "plan: stage 1 has no layers");
  EXPECT_EQ(error({all, {"fc0"}}), "plan: the layer 'fc0' is in stage 0 and in stage 1");
  EXPECT_EQ(error({{"fc0"}}), "plan: the layer 'relu0' of the model small_mlp is in no stage");
  std::vector<std::string> first{"relu0"}, rest;
  for (const auto& name : all)
    if (name != "relu0") rest.push_back(name);
  EXPECT_EQ(error({first, rest}), "plan: the layer 'relu0' of stage 0 reads 'fc0' of the later stage 1");
}

}  // namespace
}  // namespace pipedream::test
