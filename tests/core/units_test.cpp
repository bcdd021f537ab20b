#include "pipedream/core/units.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

TEST(Units, BytesUnderstandsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("16GiB"), 17179869184);
  EXPECT_EQ(parse_bytes("16 GB"), 16000000000);
  EXPECT_EQ(parse_bytes("1.5KiB"), 1536);
  EXPECT_EQ(parse_bytes("1e9"), 1000000000);
}

TEST(Units, BandwidthCountsBitsAsEighthsOfBytes) {
  EXPECT_DOUBLE_EQ(parse_bandwidth("10Gbit/s"), 1.25e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("12GB/s"), 12e9);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1e9"), 1e9);
}

TEST(Units, DurationsAreMilliseconds) {
  EXPECT_DOUBLE_EQ(parse_duration_ms("50us"), 0.05);
  EXPECT_DOUBLE_EQ(parse_duration_ms("30s"), 30000);
  EXPECT_DOUBLE_EQ(parse_duration_ms("2"), 2000);
}

TEST(Units, WhatIsNoQuantityIsRefused) {
  for (const char* text : {"", "GiB", "-1GiB", "1 parsec", "nan", "inf", "1e30", "12 GiB x"})
    EXPECT_THROW((void)parse_bytes(text), UsageError) << text;
  for (const char* text : {"", "0", "-5", "10Gbit", "fast", "0Gbit/s"}) EXPECT_THROW((void)parse_bandwidth(text), UsageError) << text;
  for (const char* text : {"", "-1s", "1 year", "s", "1e300"}) EXPECT_THROW((void)parse_duration_ms(text), UsageError) << text;
  EXPECT_THROW((void)parse_bandwidth("1e-320"), UsageError);
}

TEST(Units, FormatsReadAsPeopleWrite) {
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1048576.0 * 1000), "1000 MiB");
  EXPECT_EQ(format_bandwidth(1.25e9), "10 Gbit/s");
  EXPECT_EQ(format_ms(0.8123), "812 us");
  EXPECT_EQ(format_ms(1234), "1.23 s");
  EXPECT_EQ(format_ms(250000), "4 min 10 s");
  EXPECT_EQ(format_ms(1e303), "2.78e+296 h");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(123), "123");
}

RC_GTEST_PROP(Units, ParsingWhatWasFormattedIsCloseTo, (std::uint32_t n)) {
  const double back = static_cast<double>(parse_bytes(format_bytes(n)));
  RC_ASSERT(std::abs(back - n) <= 0.006 * n + 0.5);
}

}  // namespace
}  // namespace pipedream
