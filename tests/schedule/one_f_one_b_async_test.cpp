#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <sstream>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/validate.hpp"

namespace pipedream {
namespace {

std::vector<std::vector<int>> stages(const std::vector<int>& replicas) {
  std::vector<std::vector<int>> ranks;
  int next = 0;
  for (const int count : replicas) {
    ranks.emplace_back();
    for (int i = 0; i < count; ++i) ranks.back().push_back(next++);
  }
  return ranks;
}

ScheduleRequest request(const std::string& name, const std::vector<int>& replicas, int micro_batches, int step = 1, const std::string& policy = "") {
  ScheduleRequest result;
  result.name = name;
  result.policy = policy;
  result.chunk_ranks = stages(replicas);
  result.micro_batches = micro_batches;
  result.step_micro_batches = step;
  return result;
}

std::string row(const Schedule& schedule, int rank) {
  std::string text;
  for_each_action(schedule, rank, [&](const Action& action) { text += (text.empty() ? "" : " ") + to_string(action); });
  return text;
}

TEST(OneFOneBAsync, StashesOnTwoRanks) {
  const Schedule schedule = make_schedule(request("1f1b-async", {1, 1}, 3));
  EXPECT_EQ(
      row(schedule, 0),
      "0F0v0 0SEND_F0>1 0F1v0 0SEND_F1>1 0RECV_B0<1 0B0v0 0O0v0 0F2v1 0SEND_F2>1 0RECV_B1<1 0B1v0 0D1v0 0O1v1 0RECV_B2<1 0B2v1 0D2v1 0O2v2 0D2v2");
  EXPECT_EQ(versions_needed(schedule, 0), 2);
  EXPECT_EQ(versions_needed(schedule, 1), 1);
}

TEST(OneFOneBAsync, LagIsTheNumberOfRanksBehindButSmallerAtTheStart) {
  const int ranks = 4, micro_batches = 40;
  const Schedule schedule = make_schedule(request("1f1b-async", {1, 1, 1, 1}, micro_batches));
  EXPECT_GT(schedule.repeats, 10);  // it is folded
  for (int rank = 0; rank < ranks; ++rank) {
    int steps = 0;
    for_each_action(schedule, rank, [&](const Action& action) {
      if (action.kind == ActionKind::Step) ++steps;
      if (action.kind == ActionKind::Backward) {
        EXPECT_EQ(steps - action.version, std::min(action.micro_batch, ranks - 1 - rank));
      }
    });
    EXPECT_EQ(steps, micro_batches);
    EXPECT_EQ(versions_needed(schedule, rank), ranks - rank);
  }
}

TEST(OneFOneBAsync, ReplicasThatRunOutOfMicroBatchesStillJoinTheReduction) {
  const Schedule schedule = make_schedule(request("1f1b-async", {2, 1}, 3));
  EXPECT_EQ(row(schedule, 1), "0F1v0 0SEND_F1>1 0RECV_B1<1 0B1v0 0REDUCE1 0O1v0 0D1v0 0REDUCE2 0O2v1 0D2v1");
}

TEST(OneFOneBAsync, FoldedAndUnrolledAreTheSame) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int> replicas = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 5), rc::gen::inRange(1, 5));
    const int micro_batches = *rc::gen::inRange(1, 200), step = *rc::gen::inRange(1, 9);
    ScheduleRequest wanted = request("1f1b-async", replicas, micro_batches, step);
    wanted.extra_in_flight = *rc::gen::inRange(0, 3);
    const Schedule schedule = make_schedule(wanted);
    // The lowering of the same lists, never folded.
    Schedule flat = unrolled(generate(wanted));
    const ActionLists expected = action_lists(lower(flat));
    RC_ASSERT(schedule.micro_batches == micro_batches);
    RC_ASSERT(action_lists(schedule) == expected);
    validate(unrolled(schedule));
  }));
}

// Two replicas of one stage, seen from the first: micro-batches 0, 2 and 4. A sum is under way beside the next forward, which reads the weights
// from before its step; the last one has nothing beside it.
TEST(OneFOneBAsync, LateStepsComeAfterTheNextForward) {
  ScheduleRequest wanted = request("1f1b-async", {2}, 6, 1);
  wanted.overlap_reductions = true;
  std::string text;
  for_each_action(make_schedule(wanted), 0, [&](const Action& action) {
    if (action.kind != ActionKind::Drop) text += to_string(action) + " ";
  });
  EXPECT_EQ(text, "0F0v0 0B0v0 0REDUCE1 0F2v0 0WAIT1 0O1v0 0B2v0 0REDUCE3 0F4v1 0WAIT3 0O3v1 0B4v1 0REDUCE5 0WAIT5 0O5v2 ");
}

TEST(OneFOneBAsync, LateStepsAreValidForAnyReplicasAndCounts) {
  EXPECT_TRUE(rc::check([] {
    const std::vector<int> replicas = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 5), rc::gen::inRange(1, 5));
    ScheduleRequest wanted = request("1f1b-async", replicas, *rc::gen::inRange(1, 200), *rc::gen::inRange(1, 9));
    wanted.overlap_reductions = true;
    const Schedule late = make_schedule(wanted);
    RC_ASSERT(action_lists(late) == action_lists(lower(unrolled(generate(wanted)), {{}, true, false, 0})));
    validate(unrolled(late));
    // At most one version more than with steps at once, and none where nothing is replicated.
    wanted.overlap_reductions = false;
    const Schedule prompt = make_schedule(wanted);
    for (int chunk = 0; chunk < late.num_chunks(); ++chunk) {
      const int more = versions_needed(late, chunk) - versions_needed(prompt, chunk);
      RC_ASSERT(more >= 0 && more <= (replicas[static_cast<std::size_t>(chunk)] > 1 ? 1 : 0));
    }
  }));
}

TEST(Flushing, EveryGeneratorIsValidForAnyReplicasAndCounts) {
  EXPECT_TRUE(rc::check([] {
    const std::string name = *rc::gen::elementOf(std::vector<std::string>{"gpipe", "1f1b", "model-parallel"});
    const std::vector<int> replicas = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 6), rc::gen::inRange(1, 4));
    const ScheduleRequest wanted = request(name, replicas, *rc::gen::inRange(1, 70), *rc::gen::inRange(1, 12));
    const Schedule schedule = make_schedule(wanted);
    RC_ASSERT(action_lists(schedule) == action_lists(lower(unrolled(generate(wanted)))));
    validate(unrolled(schedule));
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) RC_ASSERT(versions_needed(schedule, chunk) == 1);
  }));
}

TEST(DoubleBuffer, IsRefusedWithFewerMicroBatchesThanRanks) {
  EXPECT_NO_THROW(static_cast<void>(make_schedule(request("1f1b-async", {1, 1, 1, 1}, 40, 4, "2bw"))));
  try {
    static_cast<void>(make_schedule(request("1f1b-async", {1, 1, 1, 1}, 40, 2, "2bw")));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("2 < 4"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pipedream
