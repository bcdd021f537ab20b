#include "pipedream/core/random.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace pipedream {
namespace {

TEST(Random, SameCoordinatesGiveTheSameNumber) { EXPECT_EQ(random_bits(key_of("conv1"), 7), random_bits(key_of("conv1"), 7)); }

TEST(Random, EveryCoordinateMatters) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (const char* layer : {"a", "b", "ab", "ba"})
      for (std::uint64_t n = 0; n < 10; ++n) seen.insert(random_bits(combine_keys(seed, key_of(layer)), n));
  EXPECT_EQ(seen.size(), 400U);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  const int n = 100000;
  double sum = 0, normal_sum = 0, normal_squares = 0;
  for (int i = 0; i < n; ++i) {
    const double u = random_uniform(42, static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    const double z = random_normal(43, static_cast<std::uint64_t>(i));
    normal_sum += z;
    normal_squares += z * z;
  }
  // Five standard errors: sqrt(1/12/n) = 0.0009, sqrt(1/n) = 0.0032, sqrt(2/n) = 0.0045.
  EXPECT_NEAR(sum / n, 0.5, 0.0046);
  EXPECT_NEAR(normal_sum / n, 0, 0.016);
  EXPECT_NEAR(normal_squares / n, 1, 0.023);
}

}  // namespace
}  // namespace pipedream
