#include "pipedream/model/import/pt2_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "fixtures.hpp"
#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Pt2File load(const std::string& name) { return read_pt2(MappedFile::open(testing::fixture(name))); }

std::string text_of(const Program& program) {
  std::ostringstream out;
  out << program;
  return out.str();
}

/// The smallest program: y = relu(x), with the given argument added to the call.
nlohmann::json small_program() {
  return nlohmann::json::parse(R"json({
    "schema_version": {"major": 8, "minor": 20}, "torch_version": "2.14.1", "verifiers": ["TRAINING"], "range_constraints": {},
    "graph_module": {
      "graph": {
        "inputs": [{"as_tensor": {"name": "x"}}], "outputs": [{"as_tensor": {"name": "y"}}],
        "nodes": [{"target": "torch.ops.aten.relu.default", "name": "y", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}, "kind": 1}],
                   "outputs": [{"as_tensor": {"name": "y"}}], "metadata": {}}],
        "tensor_values": {"x": {"dtype": 7, "requires_grad": false, "strides": [], "storage_offset": {"as_int": 0}, "layout": 7, "sizes": [
          {"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)", "hint": {"as_int": 2}}}, {"as_int": 4}]}},
        "sym_int_values": {}},
      "signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}],
                    "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}]},
      "module_call_graph": [{"fqn": "", "signature": {"forward_arg_names": ["image"]}}]}})json");
}

Program parse(const nlohmann::json& json) { return program_from_json(json.dump(), "m.json"); }

std::string error_of(const nlohmann::json& json) {
  try {
    (void)parse(json);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

Argument argument_of(const std::string& text) {
  nlohmann::json json = small_program();
  json["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = nlohmann::json::parse(text);
  return parse(json).steps.at(0).arguments.at(0).value;
}

TEST(Pt2Program, ReadsNamesTypesAndSymbols) {
  const Program program = parse(small_program());
  EXPECT_EQ(text_of(program), "input image = x: float32[s77, 4]\ny = aten.relu.default(self=x)\noutput y\n");
  EXPECT_EQ(program.producer, "torch 2.14.1");
  EXPECT_EQ(program.values.at(0).type->sizes.at(0), (Dimension{2, "s77"}));
  EXPECT_EQ(program, parse(small_program()));
}

TEST(Pt2Program, ReadsEveryArgumentVariant) {
  using Kind = Argument::Kind;
  EXPECT_EQ(argument_of(R"({"as_none": true})"), Argument::none());
  EXPECT_EQ(argument_of(R"({"as_tensor": {"name": "x"}})"), Argument::of_value(0));
  EXPECT_EQ(argument_of(R"({"as_tensors": [{"name": "x"}]})"), Argument::list({Argument::of_value(0)}));
  EXPECT_EQ(argument_of(R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})"),
            Argument::list({Argument::none(), Argument::of_value(0)}));
  EXPECT_EQ(argument_of(R"({"as_int": -3})"), Argument::of_integer(-3));
  EXPECT_EQ(argument_of(R"({"as_ints": [1, 9223372036854775807]})"), Argument::list({Argument::of_integer(1), Argument::of_integer(INT64_MAX)}));
  EXPECT_EQ(argument_of(R"({"as_float": 0.5})"), Argument::of_float(0.5));
  EXPECT_EQ(argument_of(R"({"as_float": "-Infinity"})").number, -HUGE_VAL);
  EXPECT_TRUE(std::isnan(argument_of(R"({"as_float": "NaN"})").number));
  EXPECT_EQ(argument_of(R"({"as_bool": true})"), Argument::of_boolean(true));
  EXPECT_EQ(argument_of(R"({"as_string": "mean"})"), Argument::of_text("mean"));
  EXPECT_EQ(argument_of(R"({"as_sym_int": {"as_int": 4}})"), Argument::of_integer(4));
  EXPECT_EQ(argument_of(R"({"as_sym_ints": [{"as_int": 4}, {"as_name": "x"}]})"), Argument::list({Argument::of_integer(4), Argument::of_value(0)}));
  EXPECT_EQ(argument_of(R"({"as_scalar_type": 7})").integer, static_cast<int>(ElementType::Float32));
  EXPECT_EQ(argument_of(R"({"as_memory_format": 2})").kind, Kind::MemoryFormat);
  EXPECT_EQ(argument_of(R"({"as_device": {"type": "cuda", "index": 0}})").text, "cuda");
  EXPECT_EQ(argument_of(R"({"as_complex": {"real": 1.0, "imag": 1.0}})").kind, Kind::Unsupported);
}

TEST(Pt2Program, RefusesWhatItDoesNotKnow) {
  nlohmann::json json = small_program();
  json["schema_version"]["major"] = 9;
  EXPECT_THAT(error_of(json), HasSubstr("version 9 of the format; version 8 is read"));
  json = small_program();
  json["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {{"as_quantum", 1}};
  EXPECT_THAT(error_of(json), HasSubstr("m.json#/graph_module/graph/nodes/0/inputs/0/arg: the argument variant as_quantum is not known"));
  json = small_program();
  json["graph_module"]["graph"]["nodes"][0]["inputs"][0]["arg"] = {{"as_tensor", {{"name", "z"}}}};
  EXPECT_THAT(error_of(json), HasSubstr("the value z is read before it is made"));
  json = small_program();
  json["graph_module"]["graph"]["nodes"][0]["outputs"][0]["as_tensor"]["name"] = "x";
  EXPECT_THAT(error_of(json), HasSubstr("the value x is made twice"));
  json = small_program();
  json["verifiers"] = {"ATEN"};
  EXPECT_THAT(parse(json).unsupported, ElementsAre(::testing::Pair(HasSubstr("in the dialect ATEN"), HasSubstr("before run_decompositions()"))));
}

TEST(Pt2Program, IgnoresUnknownKeys) {
  nlohmann::json json = small_program();
  json["a_new_key"] = {1, 2, {{"x", 3}}};
  json["graph_module"]["graph"]["nodes"][0]["a_new_key"] = nullptr;
  EXPECT_EQ(parse(json), parse(small_program()));
}

TEST(Pt2Program, KnowsElementCodes) {
  EXPECT_EQ(element_of_code(7), ElementType::Float32);  // 6 in c10
  EXPECT_EQ(element_of_code(12), ElementType::Bool);
  EXPECT_EQ(element_of_code(13), ElementType::BFloat16);
  EXPECT_EQ(element_of_code(35), ElementType::UInt64);
  EXPECT_EQ(element_of_code(14), ElementType::Unknown);
  EXPECT_EQ(element_of_code(-1), ElementType::Unknown);
}

TEST(Pt2File, ReadsAWholeFile) {
  const Pt2File file = load("mlp.pt2");
  EXPECT_TRUE(file.has_values);
  ASSERT_EQ(file.weights.size(), 6U);
  EXPECT_EQ(file.weights.at(0).name, "net.0.weight");
  EXPECT_THAT(file.weights.at(0).sizes, ElementsAre(10, 6));
  EXPECT_EQ(file.storages.at(file.weights.at(0).storage).bytes.size(), 240U);
  EXPECT_EQ(file.program.steps.at(1).target, "aten.relu_.default");
  EXPECT_EQ(file.program.steps.at(1).modules.back(), (ModuleEntry{"L__self__net.1", "net.1", "torch.nn.modules.activation.ReLU"}));
  EXPECT_THAT(file.program.steps.at(1).source, HasSubstr("make_import_fixtures.py:"));
}

TEST(Pt2File, KnowsAFileWithoutWeights) {
  EXPECT_FALSE(load("meta_mlp.pt2").has_values);
  EXPECT_EQ(load("meta_vgg16.pt2").weights.size(), 32U);
}

TEST(Pt2File, RefusesTruncationAtEveryByte) {
  const std::string bytes = testing::read_fixture("mlp.pt2");
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW((void)read_pt2(MappedFile::from_bytes(bytes.substr(0, size), "m.pt2")), InputError) << size;
  }
}

TEST(Pt2File, RefusesAFlippedBitInEveryByteOfAWeight) {
  const std::string bytes = testing::read_fixture("mlp.pt2");
  const Pt2File file = read_pt2(MappedFile::from_bytes(bytes, "m.pt2"));
  const std::size_t at = bytes.find(std::string(file.storages.at(file.weights.at(0).storage).bytes));
  ASSERT_NE(at, std::string::npos);
  for (std::size_t i = 0; i < 240; ++i) {
    std::string damaged = bytes;
    damaged[at + i] = static_cast<char>(damaged[at + i] ^ (1 << i % 8));
    EXPECT_THROW((void)read_pt2(MappedFile::from_bytes(damaged, "m.pt2")), InputError);
  }
}

/// How many mutants: a few hundred by default; 10,000 with PIPEDREAM_FUZZ=10000 (run it under the sanitizers).
std::uint64_t mutants() {
  const char* text = std::getenv("PIPEDREAM_FUZZ");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
}

TEST(Pt2File, MutatedArchivesGiveAnErrorOrTheSameProgram) {
  const std::string bytes = testing::read_fixture("with_loss.pt2");
  const Pt2File original = read_pt2(MappedFile::from_bytes(bytes, "m.pt2"));
  for (std::uint64_t seed = 0; seed < mutants(); ++seed) {
    try {
      const Pt2File file = read_pt2(MappedFile::from_bytes(testing::mutate(bytes, seed, 1 + static_cast<int>(seed % 3)), "m.pt2"));
      EXPECT_EQ(file.program, original.program) << seed;  // everything is under a CRC
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::InputError) << error.what();
    }
  }
}

TEST(Pt2File, MutatedJsonGivesAnErrorOrAValidProgram) {
  const ZipArchive archive(MappedFile::open(testing::fixture("with_loss.pt2")));
  const std::string json(archive.read(*archive.find("m/models/model.json")).bytes);
  for (std::uint64_t seed = 0; seed < mutants(); ++seed) {
    try {
      validate(program_from_json(testing::mutate(json, seed, 1 + static_cast<int>(seed % 4)), "m.json"), "m.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::InputError) << error.what();
    }
  }
}

}  // namespace
}  // namespace pipedream
