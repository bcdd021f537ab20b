#include "pipedream/report/table.hpp"

#include <gtest/gtest.h>

namespace pipedream {
namespace {

TEST(Table, SetsNumbersToTheRightAndRulesOffTheHeader) {
  Table table({"name", "ms"});
  table.add_row({"a", "1.5"});
  table.add_row({"long name", "12"});
  table.add_row({"none"});
  EXPECT_EQ(table.text(),
            "name        ms\n"
            "---------  ---\n"
            "a          1.5\n"
            "long name   12\n"
            "none\n");
}
TEST(Table, CountsCharactersNotBytes) {
  Table table({"µs", "x"});
  table.add_row({"é", "b"});
  EXPECT_EQ(table.text(), "µs  x\n--  -\né   b\n");
}
TEST(Table, PrintsMarkdown) {
  Table table({"name", "ms"});
  table.add_row({"a", "1.5"});
  EXPECT_EQ(table.markdown(), "| name |  ms |\n|---|--:|\n| a    | 1.5 |\n");
}
TEST(FormatNumber, KeepsSignificantDigits) {
  EXPECT_EQ(format_number(0), "0");
  EXPECT_EQ(format_number(12.5), "12.5");
  EXPECT_EQ(format_number(0.031416), "0.03142");
  EXPECT_EQ(format_number(1234567), "1234567");
  EXPECT_EQ(format_number(-2.0), "-2");
}

}  // namespace
}  // namespace pipedream
