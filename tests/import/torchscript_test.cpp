#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "reference.hpp"

namespace pipedream {
namespace {

using testing::difference;
using testing::fixture;
using testing::load_reference;
using testing::Reference;
using testing::run_detached;
using testing::run_whole;
using testing::Step;

struct ScriptFixture {
  std::string name, inputs;
};
void PrintTo(const ScriptFixture& script, std::ostream* out) { *out << script.name; }

Model load_script(const ScriptFixture& script, const std::string& granularity) {
  return import_model_spec(fixture(script.name + ".pt") + ":input=" + script.inputs + ",granularity=" + granularity);
}

ForwardContext mode_of(bool training) {
  ForwardContext context;
  context.training = context.update_buffers = training;
  return context;
}

class TorchScript : public ::testing::TestWithParam<ScriptFixture> {};

TEST_P(TorchScript, EqualsPyTorchWholeAndLayered) {
  const Reference reference = load_reference(GetParam().name);
  for (const bool training : {true, false}) {
    const std::string mode = training ? "train" : "eval";
    if (!reference.contains(mode + ".loss")) continue;
    std::map<std::string, at::Tensor> expected;
    for (const auto& [key, value] : reference) {
      if (key.starts_with(mode + ".") && key != mode + ".loss") expected.emplace(key.substr(mode.size() + 1), value);
    }
    for (const char* granularity : {"block0", "leaf", "node"}) {
      SCOPED_TRACE(mode + " " + granularity);
      const Model model = load_script(GetParam(), granularity);
      const Layers layers = create_layers(model, 0);
      const Tensors inputs = testing::inputs_of(model, reference);
      if (!training && reference.contains("train.loss")) (void)run_whole(model, layers, inputs, mode_of(true));
      const Step whole = run_detached(model, layers, inputs, mode_of(training));
      EXPECT_NEAR(whole.loss.item<float>(), reference.at(mode + ".loss").item<float>(), 2e-6);
      EXPECT_LT(difference(whole.gradients, expected), 1e-5);
      EXPECT_EQ(whole.gradients.size(), expected.size());
    }
  }
}

TEST_P(TorchScript, RunsOtherBatches) {
  const Reference reference = load_reference(GetParam().name);
  const Model model = load_script(GetParam(), "leaf");
  const Layers layers = create_layers(model, 0);
  for (const std::int64_t batch : {1, 6}) {
    Tensors inputs = testing::inputs_of(model, reference);
    for (at::Tensor& input : inputs) input = at::cat({input, input}).narrow(0, 0, batch);
    const float loss = run_whole(model, layers, inputs, mode_of(false)).loss.item<float>();
    if (batch == 6) {  // both halves are equal
      const Tensors half = testing::inputs_of(model, reference);
      EXPECT_NEAR(loss, run_whole(model, layers, half, mode_of(false)).loss.item<float>(), 1e-5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TorchScript,
                         ::testing::Values(ScriptFixture{"traced_mlp", "6"}, ScriptFixture{"scripted_mlp", "6"}, ScriptFixture{"traced_cnn", "3x6x6"},
                                           ScriptFixture{"scripted_cnn", "3x6x6"}, ScriptFixture{"traced_lstm", "i5"},
                                           ScriptFixture{"scripted_lstm", "i5"}, ScriptFixture{"traced_gpt", "i6"},
                                           ScriptFixture{"traced_encoder", "i5"}),
                         [](const auto& file) { return file.param.name; });

TEST(TorchScript, NamesAreModulePaths) {
  const Model model = load_script({"traced_mlp", "6"}, "leaf");
  std::vector<std::string> names;
  for (const LayerNode& node : model.nodes) names.push_back(node.name);
  EXPECT_THAT(names, ::testing::ElementsAre("net.0", "net.1", "net.2", "net.3", "net.4", "net.5", "net.6", "loss"));
  EXPECT_EQ(model.ties.size(), 0U);
  EXPECT_EQ(load_script({"traced_gpt", "i6"}, "leaf").ties.size(), 1U);
}

std::string script_refusal(const std::string& spec) {
  try {
    (void)import_model_spec(fixture(spec));
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TorchScript, RefusesWhatIgnoresTheBatchAndWhatDependsOnValues) {
  using ::testing::HasSubstr;
  EXPECT_THAT(script_refusal("refused_torchscript.pt"), HasSubstr("do not say the shape of their inputs"));
  EXPECT_THAT(script_refusal("refused_baked.pt:input=4"), HasSubstr("fails with a batch of 3"));
  EXPECT_THAT(script_refusal("refused_ignores_batch.pt:input=4"),
              HasSubstr("whatever the batch is: its size was turned into a constant by the trace"));
  EXPECT_THAT(script_refusal("refused_value_dependent.pt:input=4"), HasSubstr("depends on the values"));
  EXPECT_THAT(script_refusal("refused_frozen.pt:input=4"), HasSubstr("it was frozen for inference"));
  EXPECT_THAT(script_refusal("traced_mlp.pt:input=7"), HasSubstr("fails with a batch of 3"));
  EXPECT_THAT(script_refusal("traced_mlp.pt:input=6+6"), HasSubstr("takes 1 inputs, 2 were described"));
  EXPECT_THROW((void)parse_script_inputs("3x"), UsageError);
  EXPECT_THROW((void)parse_script_inputs(""), UsageError);
}

TEST(TorchScript, DamagedFilesAreRefused) {
  const std::string bytes = testing::read_fixture("traced_mlp.pt");
  const std::string path = ::testing::TempDir() + "/pipedream_damaged.pt";
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    write_file(path, testing::mutate(bytes, seed, 2));
    try {
      EXPECT_EQ(import_model_spec(path + ":input=6").nodes.size(), 8U);
    } catch (const Error& error) {
      EXPECT_NE(error.exit_code(), ExitCode::InternalError) << error.what();
    }
  }
}

}  // namespace
}  // namespace pipedream
