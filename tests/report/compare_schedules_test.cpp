#include "pipedream/report/compare_schedules.hpp"

#include <gtest/gtest.h>

#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

Schedule schedule(const std::string& name, int step, int micro_batches) {
  ScheduleRequest request;
  request.name = name;
  request.chunk_ranks = {{0}, {1}, {2}};
  request.step_micro_batches = step;
  request.micro_batches = micro_batches;
  return make_schedule(request);
}

TEST(CompareSchedules, SaysHowLateGradientsAre) {
  EXPECT_EQ(semantics_of(schedule("1f1b", 4, 8)), "synchronous");
  EXPECT_EQ(semantics_of(schedule("1f1b-async", 1, 8)), "up to 2 steps late");
}
TEST(CompareSchedules, SortsByPeriodAndPutsInfeasibleOnesLast) {
  ComparedSchedule slow, fast, impossible;
  slow.name = "slow";
  slow.period_ms = 2;
  fast.name = "fast";
  fast.period_ms = 1;
  impossible.name = "impossible";
  impossible.reason = "needs more";
  const std::string text = comparison_table({impossible, slow, fast}).text();
  EXPECT_LT(text.find("fast"), text.find("slow"));
  EXPECT_LT(text.find("slow"), text.find("impossible"));
  EXPECT_NE(text.find("needs more"), std::string::npos);
}

}  // namespace
}  // namespace pipedream
