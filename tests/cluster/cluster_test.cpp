#include "pipedream/cluster/cluster.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "pipedream/core/error.hpp"
#include "tests/graph/golden_errors.hpp"

namespace pipedream {
namespace {

Cluster random_cluster() {
  using rc::gen::inRange;
  Cluster cluster;
  const auto bandwidth = [] { return *rc::gen::arbitrary<bool>() ? *inRange(7, 1000000) / 7.0 : std::numeric_limits<double>::infinity(); };
  const bool matrix = *rc::gen::arbitrary<bool>();
  int n = matrix ? *inRange(2, 5) : 1;
  if (!matrix)
    for (int i = *inRange(1, 4); i > 0; --i) {
      cluster.levels.push_back({*inRange(1, 4), bandwidth(), *inRange(0, 1000) / 13.0, *rc::gen::arbitrary<bool>()});
      n *= cluster.levels.back().size;
    }
  for (int i = 0; i < n; ++i) {
    Device device;
    device.type = *rc::gen::elementOf(std::vector<std::string>{"v100", "a \"b\" \\c"});
    device.memory_bytes = *inRange<std::int64_t>(0, 1LL << 40);
    device.speed = *inRange(1, 100) / 11.0;
    if (*rc::gen::arbitrary<bool>()) device.profile = "own profile.json";
    cluster.devices.push_back(device);
  }
  if (matrix)
    for (int from = 0; from < n; ++from)
      for (int to = 0; to < n; ++to)
        if (from != to) cluster.links.push_back({from, to, bandwidth(), *inRange(0, 1000) / 13.0});
  return cluster;
}

RC_GTEST_PROP(Cluster, TomlGivesTheSameClusterBack, ()) {
  const Cluster cluster = random_cluster();
  validate(cluster, "file");
  RC_ASSERT(cluster_from_toml(cluster_to_toml(cluster), "file") == cluster);
}

TEST(Cluster, ReadsTheFormOfTheManual) {
  const Cluster cluster = cluster_from_toml(
      "[[devices]]\ntype = \"v100\"\ncount = 4\nmemory = \"16GiB\"\nspeed = 1.0\n"
      "[[levels]]\nsize = 2\nbandwidth = \"12GB/s\"\nlatency = \"10us\"\nshared = false\n"
      "[[levels]]\nsize = 2\nbandwidth = \"10Gbit/s\"\nlatency = \"50us\"\nshared = true\n",
      "file");
  EXPECT_EQ(cluster.num_devices(), 4);
  EXPECT_EQ(cluster.devices[3], (Device{"v100", 17179869184, 1, ""}));
  EXPECT_EQ(cluster.levels[0], (Level{2, 12e9, 0.01, false}));
  EXPECT_EQ(cluster.levels[1], (Level{2, 1.25e9, 0.05, true}));
}

TEST(Cluster, TheLowestCommonLevelDecidesThePath) {
  const Cluster cluster = make_cluster({2, 3}, {12e9, 1.25e9}, {0.01, 0.05}, 0);
  EXPECT_EQ(cluster.num_devices(), 6);
  EXPECT_TRUE(std::isinf(path_between(cluster, 2, 2).bandwidth));
  EXPECT_EQ(path_between(cluster, 2, 3).bandwidth, 12e9);
  EXPECT_EQ(path_between(cluster, 2, 3).level, 0);
  EXPECT_EQ(path_between(cluster, 1, 2).bandwidth, 1.25e9);
  EXPECT_EQ(path_between(cluster, 1, 2).latency_ms, 0.05);
  EXPECT_EQ(path_between(cluster, 0, 5).level, 1);
}

TEST(Cluster, AMatrixIsLookedUp) {
  Cluster cluster;
  cluster.devices.resize(2);
  cluster.links = {{0, 1, 5, 1}, {1, 0, 7, 2}};
  validate(cluster, "file");
  EXPECT_EQ(path_between(cluster, 1, 0).bandwidth, 7);
  EXPECT_EQ(path_between(cluster, 0, 1).latency_ms, 1);
}

TEST(Cluster, OneBandwidthServesAllLevels) {
  const Cluster cluster = make_cluster({4, 4}, {1e9}, {}, 5);
  EXPECT_EQ(cluster.levels[1].bandwidth, 1e9);
  EXPECT_EQ(cluster.levels[1].latency_ms, 0);
  EXPECT_EQ(cluster.devices[15].memory_bytes, 5);
}

TEST(Cluster, WrongOptionsAreRefused) {
  EXPECT_THROW((void)make_cluster({}, {1e9}, {}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({0}, {1e9}, {}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({4}, {}, {}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({4, 4, 4}, {1e9, 1e9}, {}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({4, 4}, {1e9}, {1, 2, 3}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({4}, {0}, {}, 0), UsageError);
  EXPECT_THROW((void)make_cluster({1000000, 1000000}, {1e9}, {}, 0), UsageError);
}

TEST(Cluster, PrintsDevicesAndLevels) {
  std::ostringstream text;
  text << make_cluster({4, 2}, {12.5e9, std::numeric_limits<double>::infinity()}, {0.01}, 17179869184);
  EXPECT_EQ(text.str(),
            "8 devices of 16.0 GiB; groups of 4 with links of 100 Gbit/s and 10.0 us latency, 2 groups with links of unlimited bandwidth and 10.0 us "
            "latency");
  Cluster mixed = make_cluster({3}, {1.25e9}, {}, 0);
  mixed.devices[0] = {"fast", 1024, 2, ""};
  text.str("");
  text << mixed;
  EXPECT_EQ(text.str(), "3 devices (1 x fast of 1.00 KiB at speed 2, 2 x device); links of 10 Gbit/s");
  text.str("");
  text << make_cluster({1}, {1.25e9}, {}, 0);
  EXPECT_EQ(text.str(), "1 device");
}

TEST(Cluster, BrokenFilesAreAnswered) {
  expect_golden_errors("tests/cluster/broken_clusters.golden", 35, [](const std::string& text) { (void)cluster_from_toml(text, "file"); });
}

}  // namespace
}  // namespace pipedream
