#include "pipedream/comm/measure_links.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks.hpp"

namespace pipedream::test {
namespace {

TEST(MeasureLinks, MeasuresEveryPairInBothDirections) {
  for (const char* transport : {"threads", "gloo"}) {
    std::vector<LinkMeasurement> links;
    const auto errors = run_ranks(transport, 3, [&](Transport& one) {
      auto own = measure_links(one, 0.05);
      if (one.rank() == 0) links = own;
      else EXPECT_TRUE(own.empty());
    });
    EXPECT_THAT(errors, testing::Each(""));
    ASSERT_EQ(links.size(), 6U);
    std::size_t next = 0;
    for (int from = 0; from < 3; ++from)
      for (int to = 0; to < 3; ++to) {
        if (from == to) continue;
        const auto& link = links[next++];
        EXPECT_EQ(std::pair(link.from, link.to), std::pair(from, to));
        EXPECT_GT(link.latency_ms, 0);
        EXPECT_GT(link.bandwidth, 0);
        EXPECT_GT(link.two_way_bandwidth, 0);
        EXPECT_EQ(link.busy_bandwidth > 0, to == (from + 1) % 3);
      }
  }
}

}  // namespace
}  // namespace pipedream::test
