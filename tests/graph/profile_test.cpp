#include "pipedream/graph/profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <sstream>

#include "pipedream/core/error.hpp"
#include "tests/graph/golden_errors.hpp"
#include "tests/graph/random_profile.hpp"

namespace pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerProfile layer(const std::string& name) {
  LayerProfile result;
  result.name = name;
  result.output_bytes = {4};
  return result;
}

RC_GTEST_PROP(Profile, JsonGivesTheSameProfileBack, ()) {
  const Profile profile = random_profile();
  RC_ASSERT(profile_from_json(profile_to_json(profile), "file") == profile);
}

RC_GTEST_PROP(Profile, TopologicalOrderIsAPermutationAlongTheEdges, ()) {
  Profile profile = random_profile();
  const std::vector<int> order = topological_order(profile);
  std::vector<int> position(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) position.at(static_cast<std::size_t>(order[i])) = static_cast<int>(i);
  RC_ASSERT(std::count(position.begin(), position.end(), -1) == 0);
  for (const ProfileEdge& edge : profile.edges)
    RC_ASSERT(position[static_cast<std::size_t>(edge.source)] < position[static_cast<std::size_t>(edge.target)]);
}

TEST(Profile, TopologicalOrderPrefersTheOrderOfTheFile) {
  Profile profile;
  profile.layers = {layer("a"), layer("b"), layer("c"), layer("d")};
  profile.edges = {{3, 0, 0}, {0, 1, 0}};  // d before a before b; c is free and stands before d in the file
  EXPECT_THAT(topological_order(profile), ElementsAre(2, 3, 0, 1));
}

TEST(Profile, ACycleIsNamedByItsLayers) {
  Profile profile;
  profile.layers = {layer("in"), layer("a"), layer("b"), layer("c"), layer("out")};
  profile.edges = {{0, 1, 0}, {1, 2, 0}, {2, 3, 0}, {3, 1, 0}, {3, 4, 0}};
  try {
    validate(profile, "net.json");
    FAIL() << "a cycle was accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "net.json: the layers form a cycle: 'a' -> 'b' -> 'c' -> 'a'");
  }
}

TEST(Profile, SumsOutputsAndFindsLayers) {
  Profile profile;
  profile.layers = {layer("a"), layer("b")};
  profile.layers[1].output_bytes = {8, 16, 32};
  EXPECT_EQ(profile.layers[1].total_output_bytes(), 56);
  EXPECT_EQ(find_layer(profile, "b"), 1);
  EXPECT_EQ(find_layer(profile, "x"), std::nullopt);
}

TEST(Profile, FingerprintSeesTimesButNotDescriptions) {
  Profile one;
  one.layers = {layer("a"), layer("b")};
  Profile two = one;
  two.layers[0].description = "something";
  EXPECT_EQ(fingerprint(one), fingerprint(two));
  EXPECT_EQ(fingerprint(one).size(), 16U);
  two.layers[0].forward_ms = 1;
  EXPECT_NE(fingerprint(one), fingerprint(two));
}

TEST(Profile, PrintsItsSums) {
  Profile profile;
  profile.model = "net";
  profile.layers = {layer("a"), layer("b")};
  profile.layers[0].forward_ms = 1.5;
  profile.layers[1].backward_ms = 2;
  profile.layers[1].parameter_bytes = 2048;
  std::ostringstream text;
  text << profile;
  EXPECT_EQ(text.str(), "profile of net: 2 layers, 0 edges, forward 1.50 ms, backward 2.00 ms, parameters 2.00 KiB");
}

TEST(Profile, BrokenFilesAreAnswered) {
  expect_golden_errors("tests/graph/broken_profiles.golden", 45, [](const std::string& text) { (void)profile_from_json(text, "file"); });
}

}  // namespace
}  // namespace pipedream
