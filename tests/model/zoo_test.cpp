#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

std::int64_t parameters_of(const std::string& spec, const ModelContext& context = {}) {
  const Model model = make_model(spec, context);
  return count_elements(distinct_parameters(model, create_layers(model, 1)));
}

ModelContext fashion_mnist() { return {{1, 28, 28}, 10, 0}; }

Tensors random_inputs(const Model& model, std::int64_t batch, std::int64_t classes) {
  Tensors inputs;
  for (const TensorSpec& spec : model.inputs) {
    std::vector<std::int64_t> shape = spec.shape;
    shape.insert(shape.begin(), batch);
    inputs.push_back(spec.dtype == at::kLong ? at::randint(classes, shape, at::TensorOptions().dtype(at::kLong)) : at::randn(shape));
  }
  return inputs;
}

// Published: torchvision's model pages; GPT-2 small as released (124,439,808 with tied embeddings).
TEST(Zoo, ParameterCountsEqualThePublishedOnes) {
  EXPECT_EQ(parameters_of("alexnet"), 61'100'840);
  EXPECT_EQ(parameters_of("vgg11"), 132'863'336);
  EXPECT_EQ(parameters_of("vgg16"), 138'357'544);
  EXPECT_EQ(parameters_of("resnet18"), 11'689'512);
  EXPECT_EQ(parameters_of("resnet50"), 25'557'032);
  EXPECT_EQ(parameters_of("lenet"), 61'706);
  EXPECT_EQ(parameters_of("gpt:blocks=12,width=768,heads=12,context=1024,vocabulary=50257,tied=1"), 124'439'808);
}

TEST(Zoo, CountsOfSmallFormsByHand) {
  // 784*16+16 + 16*16+16 + 16*10+10 = 12560 + 272 + 170
  EXPECT_EQ(parameters_of("mlp:layers=2,width=16", fashion_mnist()), 13'002);
  // The features of VGG-11 with one input channel (9,220,480 - 2*64*9 = 9,219,328) and 512*10+10.
  EXPECT_EQ(parameters_of("vgg11", fashion_mnist()), 9'219'328 + 5'130);
}

TEST(Zoo, EveryModelTrainsOnItsSmallInput) {
  for (const ModelInfo& info : list_models()) {
    SCOPED_TRACE(info.name);
    const bool language = info.name == "gpt";
    const Model model =
        make_model(language ? "gpt:blocks=2,width=32,heads=2,context=8,dropout=0.1" : info.name, language ? ModelContext{} : fashion_mnist());
    const Layers layers = create_layers(model, 1);
    const ModelOutputs outputs = run(model, layers, random_inputs(model, 2, 10), {});
    EXPECT_EQ(outputs.loss.dim(), 0);
    ASSERT_TRUE(outputs.prediction.defined());
    EXPECT_EQ(outputs.prediction.size(-1), language ? 256 : 10);
    outputs.loss.backward();
    for (const NamedTensor& parameter : distinct_parameters(model, layers)) {
      ASSERT_TRUE(parameter.tensor.grad().defined()) << parameter.name;
      EXPECT_TRUE(parameter.tensor.grad().isfinite().all().item<bool>()) << parameter.name;
    }
  }
}

TEST(Zoo, LargeFormsGiveAThousandClasses) {
  const c10::NoGradGuard no_grad;
  for (const char* name : {"alexnet", "resnet18"}) {
    const Model model = make_model(name, {});
    ForwardContext evaluation;
    evaluation.training = false;
    const ModelOutputs outputs = run(model, create_layers(model, 1), random_inputs(model, 1, 10), evaluation);
    EXPECT_EQ(outputs.prediction.sizes(), at::IntArrayRef({1, 1000})) << name;
  }
}

TEST(Zoo, SmallImagesArePaddedWhereANetworkNeedsIt) {
  EXPECT_EQ(make_model("vgg11", fashion_mnist()).inputs[0].shape, (std::vector<std::int64_t>{1, 32, 32}));
  EXPECT_EQ(make_model("lenet", fashion_mnist()).inputs[0].shape, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(make_model("vgg11:size=224,channels=3", fashion_mnist()).inputs[0].shape, (std::vector<std::int64_t>{3, 224, 224}));
}

TEST(Zoo, InitialLossIsAboutThatOfAGuess) {
  const Model model = make_model("gpt:blocks=2,width=64,heads=4,context=16", {});
  const c10::NoGradGuard no_grad;
  const ModelOutputs outputs = run(model, create_layers(model, 3), random_inputs(model, 4, 256), {});
  EXPECT_NEAR(outputs.loss.item<double>(), std::log(256.0), 0.2);
}

std::string usage_error(const std::string& spec, const ModelContext& context = {}) {
  try {
    (void)make_model(spec, context);
  } catch (const UsageError& error) {
    return std::string(error.what()) + " / " + error.hint();
  }
  return "no error";
}

TEST(Zoo, ErrorsNameWhatIsKnown) {
  using testing::HasSubstr;
  EXPECT_THAT(usage_error("vgg12"), HasSubstr("known models: mlp, lenet"));
  EXPECT_THAT(usage_error("mlp:depth=3"), HasSubstr("has no option 'depth'"));
  EXPECT_THAT(usage_error("mlp:depth=3"), HasSubstr("layers, width"));
  EXPECT_THAT(usage_error("mlp:layers=x"), HasSubstr("an integer from 1"));
  EXPECT_THAT(usage_error("mlp:layers=2,layers=3"), HasSubstr("twice"));
  EXPECT_THAT(usage_error("mlp:,"), HasSubstr("malformed"));
  EXPECT_THAT(usage_error("mlp:layers=99999999999999999999"), HasSubstr("integer"));
  EXPECT_THAT(usage_error("gpt:width=10,heads=3"), HasSubstr("do not divide"));
  EXPECT_THAT(usage_error("gpt", fashion_mnist()), HasSubstr("holds images"));
  EXPECT_THAT(usage_error("vgg11", {{}, 0, 256}), HasSubstr("holds tokens"));
  EXPECT_THAT(usage_error("gpt:vocabulary=10", {{}, 0, 256}), HasSubstr("smaller"));
  EXPECT_THAT(usage_error("mlp:classes=5", fashion_mnist()), HasSubstr("less than the 10"));
  EXPECT_THAT(usage_error("vgg11:size=31"), HasSubstr("from 32"));
  EXPECT_THAT(usage_error(""), HasSubstr("needs a name"));
}

}  // namespace
}  // namespace pipedream
