#include "pipedream/graph/graph_txt.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "pipedream/core/file.hpp"
#include "tests/graph/golden_errors.hpp"
#include "tests/graph/random_profile.hpp"

namespace pipedream {
namespace {

const std::filesystem::path kProfiles = "../shared/data/profiles";

TEST(GraphTxt, ReadsOneLayerAndOneEdge) {
  const Profile profile = profile_from_graph_txt(
      "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=0.0, parameter_size=0.000\n"
      "node2 -- LSTM(  (a): x=1, y) -- forward_compute_time=22.307, backward_compute_time=24.613, activation_size=[8.0; 4.0; 4.0], "
      "parameter_size=7168.000 "
      "-- stage_id=3\n"
      "\tnode1 -- node2",
      "dir/net.graph.txt");
  ASSERT_EQ(profile.num_layers(), 2);
  EXPECT_EQ(profile.model, "net");
  const LayerProfile& layer = profile.layers[1];
  EXPECT_EQ(layer.name, "node2");
  EXPECT_EQ(layer.description, "LSTM(  (a): x=1, y)");
  EXPECT_EQ(layer.forward_ms, 22.307);
  EXPECT_EQ(layer.backward_ms, 24.613);
  EXPECT_EQ(layer.output_bytes, (std::vector<std::int64_t>{8, 4, 4}));
  EXPECT_EQ(layer.parameter_bytes, 7168);
  EXPECT_EQ(layer.stage_id, 3);
  EXPECT_EQ(profile.edges, (std::vector<ProfileEdge>{{0, 1, 0}}));
}

RC_GTEST_PROP(GraphTxt, GivesTheSameGraphBack, ()) {
  Profile profile = random_profile();
  const Profile once = profile_from_graph_txt(profile_to_graph_txt(profile), "file");
  RC_ASSERT(profile_from_graph_txt(profile_to_graph_txt(once), "file") == once);
  for (std::size_t i = 0; i < once.layers.size(); ++i) {
    RC_ASSERT(once.layers[i].forward_ms == profile.layers[i].forward_ms);
    RC_ASSERT(once.layers[i].backward_ms == profile.layers[i].backward_ms);
    RC_ASSERT(once.layers[i].output_bytes == profile.layers[i].output_bytes);
    RC_ASSERT(once.layers[i].description == profile.layers[i].description);
  }
}

// Every file of the original comes back with the same values, and as the same text but for how the zeros of sizes are written.
TEST(GraphTxt, AllFilesOfTheOriginalRoundTrip) {
  if (!std::filesystem::exists(kProfiles)) GTEST_SKIP() << kProfiles << " is absent";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kProfiles)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".graph.txt") == std::string::npos) continue;
    ++files;
    const std::string text = read_file(entry.path());
    const Profile profile = load_profile(entry.path().string());
    const Profile again = profile_from_graph_txt(profile_to_graph_txt(profile), name);
    EXPECT_EQ(again, profile) << name;
    EXPECT_EQ(profile_from_json(profile_to_json(profile), name), profile) << name;
    const std::string written = profile_to_graph_txt(profile);
    EXPECT_EQ(std::count(written.begin(), written.end(), '\n'), std::count(text.begin(), text.end(), '\n') - (text.back() == '\n' ? 1 : 0)) << name;
  }
  EXPECT_EQ(files, 20);
}

// Layer and edge counts of specification section 3.1.
TEST(GraphTxt, CountsOfTheOriginalsFiles) {
  if (!std::filesystem::exists(kProfiles)) GTEST_SKIP() << kProfiles << " is absent";
  const std::map<std::string, std::pair<int, int>> counts{
      {"alexnet", {23, 23}},          {"vgg16", {41, 41}}, {"resnet50", {177, 193}},  {"inception_v3", {326, 362}}, {"nasnetamobile", {921, 1078}},
      {"nasnetalarge", {1251, 1468}}, {"gnmt", {48, 58}},  {"gnmt_large", {96, 122}}, {"densenet121", {429, 487}}};
  for (const auto& [name, count] : counts) {
    const Profile profile = load_profile((kProfiles / (name + ".graph.txt")).string());
    EXPECT_EQ(profile.num_layers(), count.first) << name;
    EXPECT_EQ(static_cast<int>(profile.edges.size()), count.second) << name;
  }
}

TEST(GraphTxt, BrokenFilesAreAnswered) {
  expect_golden_errors("tests/graph/broken_graph_txt.golden", 23, [](const std::string& text) { (void)profile_from_graph_txt(text, "file"); });
}

}  // namespace
}  // namespace pipedream
