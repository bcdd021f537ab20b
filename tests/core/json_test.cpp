#include "pipedream/core/json.hpp"

#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

std::string error_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(JsonView, ErrorsNameFileAndPointer) {
  const Json json = parse_json(R"({"layers":[{"name":"a"},{"name":3}]})", "p.json");
  const JsonView view(json, "p.json");
  EXPECT_EQ(view.at("layers").elements()[0].at("name").string(), "a");
  EXPECT_EQ(error_of([&] { (void)view.at("layers").elements()[1].at("name").string(); }), "p.json#/layers/1/name: a text is expected, found 3");
  EXPECT_EQ(error_of([&] { (void)view.at("edges"); }), "p.json: the key \"edges\" is missing");
}

TEST(JsonView, NumbersAreChecked) {
  const Json json = parse_json(R"({"a":-1,"b":2.5,"c":3.0,"d":3000000000})", "p.json");
  const JsonView view(json, "p.json");
  EXPECT_EQ(error_of([&] { (void)view.at("a").number(0); }), "p.json#/a: a number of at least 0 is expected, found -1");
  EXPECT_EQ(error_of([&] { (void)view.at("b").integer(); }), "p.json#/b: an integer is expected, found 2.5");
  EXPECT_EQ(view.at("c").integer(), 3);
  EXPECT_EQ(error_of([&] { (void)view.at("d").index(); }), "p.json#/d: an integer below 2^31 is expected, found 3000000000");
}

TEST(ParseJson, MalformedTextNamesItsLine) {
  EXPECT_EQ(error_of([] { (void)parse_json("{\n\"a\":\n}", "p.json"); }).substr(0, 9), "p.json:3:");
  EXPECT_EQ(error_of([] { (void)parse_json("[1e400]", "p.json"); }), "p.json: malformed JSON: number overflow parsing '1e400'");
  EXPECT_EQ(error_of([] { (void)parse_json("", "p.json"); }), "p.json:1: the file is empty, JSON is expected");
  EXPECT_EQ(error_of([] { (void)parse_json(std::string(100000, '['), "p.json"); }), "p.json: the JSON is nested more than 200 deep");
}

TEST(RequireSchema, SaysWhatWasExpected) {
  const Json json = parse_json(R"({"schema":"pipedream.plan/1"})", "p.json");
  EXPECT_EQ(error_of([&] { require_schema(JsonView(json, "p.json"), "pipedream.profile/1"); }),
            "p.json#/schema: \"pipedream.profile/1\" is expected, found \"pipedream.plan/1\"");
}

}  // namespace
}  // namespace pipedream
