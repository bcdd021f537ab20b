#include "pipedream/report/schedules_document.hpp"

#include <gtest/gtest.h>

#include "pipedream/core/file.hpp"

namespace pipedream {
namespace {

TEST(SchedulesDocument, ThePageIsWhatTheProgramSays) {
  EXPECT_TRUE(read_file(PIPEDREAM_SOURCE_DIR "/docs/schedules.md") == schedules_document())
      << "write it again: pipedream schedule --document > docs/schedules.md";
}

}  // namespace
}  // namespace pipedream
