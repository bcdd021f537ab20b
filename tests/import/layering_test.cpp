#include "pipedream/model/import/layering.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/model/import/pt2_file.hpp"

namespace pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Program load_program(const std::string& name) { return read_pt2(MappedFile::open(testing::fixture(name))).program; }

/// Programs by hand. Values are named; module paths are written "a.b" and get the class "M" unless "a.b:torch.nn.Linear".
class Builder {
 public:
  Builder() { input("x"); }
  Builder& input(const std::string& name) {
    program_.inputs.push_back({name, value(name)});
    return *this;
  }
  Builder& buffer(const std::string& name) {
    program_.buffers.push_back({name, value(name), true});
    return *this;
  }
  Builder& parameter(const std::string& name) {
    program_.parameters.push_back({name, value(name), true});
    return *this;
  }
  Builder& step(const std::string& result, const std::string& target, const std::vector<std::string>& arguments, const std::string& module = "") {
    ProgramStep step;
    step.name = result;
    step.target = target;
    for (const std::string& argument : arguments) step.arguments.push_back({"", Argument::of_value(program_.find_value(argument).value())});
    step.outputs = {{{value(result)}, false}};
    if (module != "-") step.modules.push_back({"", "", "Model"});
    const std::size_t colon = module.find(':');
    if (module != "-" && !module.empty())
      step.modules.push_back({"key " + module, module.substr(0, colon), colon == std::string::npos ? "M" : module.substr(colon + 1)});
    program_.steps.push_back(step);
    return *this;
  }
  /// Makes the last result an integer: a size of dimension 0.
  Builder& size_of(const std::string& result, const std::string& tensor, const std::string& expression) {
    step(result, "aten.sym_size.int", {tensor});
    program_.steps.back().arguments.push_back({"dim", Argument::of_integer(0)});
    program_.values.back().kind = ProgramValue::Kind::Integer;
    symbolic(tensor, expression);
    return *this;
  }
  Builder& symbolic(const std::string& tensor, const std::string& expression) {
    program_.values[static_cast<std::size_t>(program_.find_value(tensor).value())].type =
        TensorType{ElementType::Float32, {{2, expression}, {3, ""}}, false};
    return *this;
  }
  Program finish(const std::string& output) {
    program_.outputs = {{program_.find_value(output).value(), false}};
    validate(program_, "test");
    return program_;
  }

 private:
  int value(const std::string& name) {
    program_.values.push_back({name, ProgramValue::Kind::Tensor, {}, {}});
    return static_cast<int>(program_.values.size()) - 1;
  }
  Program program_;
};

std::string cut(const Program& program, const std::string& granularity = "leaf") {
  std::ostringstream out;
  out << cut_into_layers(program, parse_granularity(granularity));
  return out.str();
}

std::vector<std::string> layer_names(const LayeredProgram& layered) {
  std::vector<std::string> names;
  for (const ProgramLayer& layer : layered.layers) names.push_back(layer.name);
  return names;
}

TEST(Layering, DiamondOfModules) {
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "stem:torch.nn.Tanh")
                              .step("b", "aten.sin.default", {"a"}, "left")
                              .step("c", "aten.cos.default", {"a"}, "right")
                              .step("d", "aten.add.Tensor", {"b", "c"})
                              .finish("d");
  EXPECT_EQ(cut(program),
            "stem(x) -> a\n  a = aten.tanh.default(x)\n"
            "left(a) -> b\n  b = aten.sin.default(a)\n"
            "right(a) -> c\n  c = aten.cos.default(a)\n"
            "+add(b, c) -> d\n  d = aten.add.Tensor(b, c)\n");
}

TEST(Layering, LaterStepsJoinAnEarlierLayerOnlyIfNothingLiesBetween) {
  // "m" works before and after "inner": its second part needs what "inner" makes. The third step needs the first only and joins it.
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "m")
                              .step("b", "aten.sin.default", {"a"}, "m.inner")
                              .step("c", "aten.exp.default", {"a"}, "m")
                              .step("d", "aten.add.Tensor", {"b", "c"}, "m")
                              .finish("d");
  EXPECT_THAT(layer_names(cut_into_layers(program, {})), ElementsAre("m+exp", "m.inner", "m+add"));
}

TEST(Layering, ASizeIsReadFromATensorAtHand) {
  const Program program = Builder()
                              .size_of("n", "x", "s0")
                              .step("a", "aten.tanh.default", {"x"}, "first")
                              .symbolic("a", "s0")
                              .step("b", "aten.expand.default", {"a", "n"}, "second")
                              .finish("b");
  EXPECT_EQ(cut(program),
            "first(x) -> a\n  a = aten.tanh.default(x)\n"
            "second(a) -> b\n  n = size(a, 0)\n  b = aten.expand.default(a, n)\n");
}

TEST(Layering, ASizeThatIsNowhereAtHandBringsItsTensor) {
  const Program program = Builder()
                              .size_of("n", "x", "s0")
                              .step("a", "aten.sum.default", {"x"}, "first")
                              .step("b", "aten.expand.default", {"a", "n"}, "second")
                              .finish("b");
  EXPECT_THAT(cut(program), HasSubstr("second(x, a) -> b\n  n = aten.sym_size.int(x, dim=0)\n"));
}

TEST(Layering, ConstantsAreCopied) {
  const Program program = Builder()
                              .buffer("mask")
                              .step("one", "aten.neg.default", {"mask"})
                              .step("a", "aten.add.Tensor", {"x", "one"}, "first")
                              .step("b", "aten.mul.Tensor", {"a", "one"}, "second")
                              .finish("b");
  const LayeredProgram layered = cut_into_layers(program, {});
  EXPECT_THAT(layer_names(layered), ElementsAre("first", "second"));
  EXPECT_EQ(layered.layers[1].buffers.size(), 1U);
  EXPECT_EQ(layered.layers[1].inputs.size(), 1U);
}

TEST(Layering, InPlaceAtABoundaryBecomesOutOfPlaceAndLaterReadersFollow) {
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "first")
                              .step("r", "aten.relu_.default", {"a"}, "second")
                              .step("b", "aten.add.Tensor", {"a", "r"}, "third")  // "a" was changed: it is "r" now
                              .finish("b");
  EXPECT_EQ(cut(program),
            "first(x) -> a\n  a = aten.tanh.default(x)\n"
            "second(a) -> r\n  r = aten.relu.default(a)\n"
            "third(r) -> b\n  b = aten.add.Tensor(r, r)\n");
}

TEST(Layering, ChangesThroughAViewStayTogether) {
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "first")
                              .step("v", "aten.view.default", {"a"}, "second")
                              .step("w", "aten.add_.Tensor", {"v", "x"}, "second")  // changes "a" through "v"
                              .step("b", "aten.sin.default", {"a"}, "third")
                              .finish("b");
  const LayeredProgram layered = cut_into_layers(program, {});
  EXPECT_EQ(layered.layers.size(), 2U);
  EXPECT_EQ(layered.layers[0].steps, (std::vector<int>{0, 1, 2}));
  EXPECT_THAT(layered.notes, ElementsAre(HasSubstr("the layers from first+tanh to second+add_ form one")));
  EXPECT_EQ(layered.program.steps[2].target, "aten.add_.Tensor");
}

TEST(Layering, AnInputChangedThroughAViewIsCopiedFirst) {
  const Program program = Builder()
                              .step("v", "aten.select.int", {"x"}, "first")
                              .step("w", "aten.zero_.default", {"v"}, "first")
                              .step("b", "aten.sin.default", {"x"}, "second")
                              .finish("b");
  EXPECT_THAT(cut(program), HasSubstr("x_copy = aten.clone.default(self=x)\n  v = aten.select.int(x_copy)\n  w = aten.zero_.default(v)\n"));
}

TEST(Layering, AViewChangedWithoutOtherReadersNeedsNoGroup) {
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "f")
                              .step("v", "aten.view.default", {"a"}, "g")
                              .step("w", "aten.relu_.default", {"v"}, "h")
                              .finish("w");
  EXPECT_THAT(cut(program), HasSubstr("h(v) -> w\n  w = aten.relu.default(v)\n"));
}

TEST(Layering, ModulesThatChangeTheSameBufferAreJoined) {
  const Program program = Builder()
                              .buffer("count")
                              .step("a", "aten.tanh.default", {"x"}, "first")
                              .step("n", "aten.add_.Tensor", {"count", "count"}, "bn")
                              .step("b", "aten.mul.Tensor", {"a", "x"}, "bn")
                              .step("c", "aten.sin.default", {"b"}, "between")
                              .step("m", "aten.add_.Tensor", {"count", "count"}, "bn@1")
                              .step("d", "aten.mul.Tensor", {"c", "b"}, "bn@1")
                              .finish("d");
  const LayeredProgram layered = cut_into_layers(program, {});
  EXPECT_EQ(layered.layers.size(), 2U);
  EXPECT_THAT(layered.notes, ElementsAre(HasSubstr("they share the statistics count")));
  EXPECT_EQ(layered.layers[1].changed_buffers.size(), 1U);
}

TEST(Layering, WithoutModulePathsStepsGoByTheirParameters) {
  const Program program = Builder()
                              .parameter("fc1.weight")
                              .parameter("fc2.weight")
                              .step("a", "aten.linear.default", {"x", "fc1.weight"}, "-")
                              .step("b", "aten.relu.default", {"a"}, "-")
                              .step("c", "aten.linear.default", {"b", "fc2.weight"}, "-")
                              .step("d", "aten.add.Tensor", {"b", "c"}, "-")
                              .finish("d");
  EXPECT_THAT(layer_names(cut_into_layers(program, {})), ElementsAre("fc1", "fc2", "+add"));
}

TEST(Layering, UnusedStepsAndAssertionsGo) {
  const Program program = Builder()
                              .step("a", "aten.tanh.default", {"x"}, "first")
                              .step("b", "aten.sin.default", {"a"}, "unused")
                              .step("c", "aten._assert_tensor_metadata.default", {"a"}, "check")
                              .finish("a");
  EXPECT_THAT(layer_names(cut_into_layers(program, {})), ElementsAre("first"));
}

TEST(Layering, CountsOfKnownArchitectures) {
  // Counts of torchvision's modules in use: VGG-16 has 13 convolutions, 15 ReLUs, 5 poolings, 1 adaptive pooling, flatten, 3 linear layers and 2
  // dropouts = 40. ResNet-50: 53 convolutions, 53 batch norms, 49 ReLUs, 16 additions, pooling twice, flatten, fc = 175; 16 blocks + 7 = 23.
  // GPT-2 small: 12 blocks of 12 + embeddings, their sum, dropout, last norm, head = 150; 12 blocks + 6 = 18.
  std::map<std::string, Program> programs;
  const auto count = [&](const std::string& file, const std::string& granularity) {
    if (!programs.contains(file)) programs[file] = load_program(file);
    return cut_into_layers(programs[file], parse_granularity(granularity)).layers.size();
  };
  EXPECT_EQ(count("meta_vgg16.pt2", "leaf"), 40U);
  EXPECT_EQ(count("meta_vgg16.pt2", "block:1"), 4U);
  EXPECT_EQ(count("meta_resnet50.pt2", "leaf"), 175U);
  EXPECT_EQ(count("meta_resnet50.pt2", "block:1"), 11U);
  EXPECT_EQ(count("meta_resnet50.pt2", "block:2"), 23U);
  EXPECT_EQ(count("meta_inception_v3.pt2", "leaf"), 310U);
  EXPECT_EQ(count("meta_inception_v3.pt2", "block:1"), 22U);
  EXPECT_EQ(count("meta_gpt2.pt2", "leaf"), 150U);
  EXPECT_EQ(count("meta_gpt2.pt2", "block"), 18U);
}

TEST(Layering, NamesAreModulePaths) {
  const LayeredProgram gpt = cut_into_layers(load_program("gpt.pt2"), {});
  const std::vector<std::string> names = layer_names(gpt);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 16),
              ElementsAre("wte", "wpe", "+add", "drop", "h.0.ln_1", "h.0.attn.c_attn", "h.0.attn+scaled_dot_product_attention", "h.0.attn.c_proj",
                          "h.0.attn_drop", "h.0+add", "h.0.ln_2", "h.0.c_fc", "h.0.act", "h.0.c_proj", "h.0.drop", "h.0+add.2"));
  EXPECT_THAT(layer_names(cut_into_layers(load_program("mlp.pt2"), {})), ElementsAre("net.0", "net.1", "net.2", "net.3", "net.4", "net.5", "net.6"));
  EXPECT_THAT(layer_names(cut_into_layers(load_program("mlp.pt2"), parse_granularity("block:0"))), ElementsAre("model"));
}

/// Every layer reads earlier layers and model inputs only, and everything it reads is made by someone.
void expect_well_formed(const LayeredProgram& layered) {
  std::set<int> made;
  for (const ProgramInput& input : layered.program.inputs) made.insert(input.value);
  std::set<std::string> names;
  for (const ProgramLayer& layer : layered.layers) {
    for (const int id : layer.inputs) EXPECT_TRUE(made.contains(id)) << layer.name;
    std::set<int> at_hand(layer.inputs.begin(), layer.inputs.end());
    for (const auto* ids : {&layer.parameters, &layer.buffers, &layer.constants}) at_hand.insert(ids->begin(), ids->end());
    for (const int index : layer.steps) {
      const auto source = std::find_if(layer.sizes.begin(), layer.sizes.end(), [&](const SizeSource& s) { return s.step == index; });
      const ProgramStep& step = layered.program.steps[static_cast<std::size_t>(index)];
      for (const int id : source == layer.sizes.end() ? step.reads() : std::vector<int>{source->value})
        EXPECT_TRUE(at_hand.contains(id)) << layer.name << " " << step.name;
      for (const int id : step.writes()) at_hand.insert(id);
    }
    for (const int id : layer.outputs) EXPECT_TRUE(at_hand.contains(id)) << layer.name;
    made.insert(layer.outputs.begin(), layer.outputs.end());
    EXPECT_TRUE(names.insert(layer.name).second) << layer.name;
  }
  for (const ProgramOutput& output : layered.program.outputs) EXPECT_TRUE(made.contains(output.value));
}

TEST(Layering, IsWellFormedAtEveryGranularity) {
  for (const char* file : {"mlp", "cnn", "lstm", "gru", "encoder", "gpt", "with_loss", "stochastic_depth", "views", "sequence_first", "meta_vgg16",
                           "meta_resnet50", "meta_inception_v3", "meta_gpt2", "refused_shared_statistics"}) {
    const Program program = load_program(std::string(file) + ".pt2");
    for (const char* granularity : {"leaf", "node", "block:0", "block:1", "block:2", "block:3"}) {
      SCOPED_TRACE(std::string(file) + " " + granularity);
      expect_well_formed(cut_into_layers(program, parse_granularity(granularity)));
    }
  }
}

TEST(Layering, NothingButOneTensorCrossesInKnownArchitectures) {
  for (const char* file : {"meta_vgg16.pt2", "meta_gpt2.pt2", "meta_resnet50.pt2"}) {
    const LayeredProgram layered = cut_into_layers(load_program(file), {});
    for (const ProgramLayer& layer : layered.layers) EXPECT_EQ(layer.outputs.size(), 1U) << file << " " << layer.name;
    EXPECT_THAT(layered.notes, IsEmpty());
  }
}

TEST(Layering, ReadsGranularities) {
  EXPECT_EQ(parse_granularity("block:3"), (Granularity{Granularity::Kind::Block, 3}));
  for (const char* text : {"", "leafs", "block:", "block:x", "block:-1", "block:99999"}) EXPECT_THROW((void)parse_granularity(text), UsageError);
}

}  // namespace
}  // namespace pipedream
