#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipedream/report/schedule_grid.hpp"
#include "pipedream/report/timeline_html.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Trace two_ranks() {
  ScheduleRequest request;
  request.name = "1f1b";
  request.chunk_ranks = {{0}, {1}};
  request.micro_batches = request.step_micro_batches = 2;
  return simulate(make_schedule(request), {}).trace;
}

TEST(ScheduleGrid, DrawsTimeToTheRight) {
  // F = 1, B = 2: rank 1 runs F0 1-2, B0 2-4, F1 4-5, B1 5-7; a column is a third of a millisecond.
  EXPECT_EQ(schedule_grid(two_ranks()),
            "rank  0 F0 F1 ......B0--- ...B1---\n"
            "rank  1 ...F0 B0--- F1 B1--- ......\n");
}
TEST(ScheduleGrid, SaysWhenItCutsOff) {
  GridOptions narrow;
  narrow.width = 20;
  EXPECT_THAT(schedule_grid(two_ranks(), narrow), HasSubstr("of 9 ms"));
}
TEST(TimelineHtml, StandsAlone) {
  const std::string page = timeline_html({{"first </script> one", two_ranks()}, {"second", two_ranks()}});
  EXPECT_THAT(page, HasSubstr("<!doctype html>"));
  EXPECT_THAT(page, Not(HasSubstr("http")));  // nothing from elsewhere
  EXPECT_THAT(page, Not(HasSubstr("first </script>")));
  EXPECT_THAT(page, HasSubstr("[0,0,0,0,0,0,0,1]"));  // rank 0 runs 0F0 on version 0 from 0 to 1 ms
}

}  // namespace
}  // namespace pipedream
