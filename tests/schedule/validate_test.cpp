#include "pipedream/schedule/validate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

using ::testing::HasSubstr;

Schedule base(const std::string& name = "1f1b", const std::vector<std::vector<int>>& chunk_ranks = {{0}, {1}}, int micro_batches = 4) {
  ScheduleRequest request;
  request.name = name;
  request.chunk_ranks = chunk_ranks;
  request.micro_batches = micro_batches;
  request.step_micro_batches = name == "1f1b-async" ? 1 : micro_batches;
  return unrolled(make_schedule(request));
}

/// Position of the first action that reads like this.
std::size_t find(const std::vector<Action>& list, const std::string& text) {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (to_string(list[i]) == text) return i;
  ADD_FAILURE() << "no " << text;
  return 0;
}

void expect_group(const Schedule& schedule, RuleGroup group, const ValidationOptions& options = {}) {
  const auto violation = find_violation(schedule, options);
  ASSERT_TRUE(violation.has_value());
  EXPECT_EQ(name_of(violation->group), name_of(group)) << violation->what;
}

TEST(Validate, Group1AMissingBackward) {
  Schedule schedule = base("gpipe", {{0}}, 2);
  auto& list = schedule.ranks[0].prologue;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(find(list, "0B0v0")));
  expect_group(schedule, RuleGroup::Completeness);
}
TEST(Validate, Group2ABackwardBeforeItsForward) {
  Schedule schedule = base("gpipe", {{0}}, 2);
  auto& list = schedule.ranks[0].prologue;
  std::swap(list[find(list, "0F1v0")], list[find(list, "0B1v0")]);
  expect_group(schedule, RuleGroup::LocalOrder);
}
TEST(Validate, Group3RanksThatWaitForEachOther) {
  Schedule schedule = base();  // rank 0 asks for the first gradient before it sends the forward that rank 1 needs to make it
  auto& list = schedule.ranks[0].prologue;
  const Action receive = list[find(list, "0RECV_B0<1")];
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(find(list, "0RECV_B0<1")));
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(find(list, "0SEND_F0>1")), receive);
  expect_group(schedule, RuleGroup::Deadlock);
  try {
    validate(schedule);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 at 0RECV_B0<1 waits for rank 1, which is at 1RECV_F0<0"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 at 1RECV_F0<0 waits for rank 0, which is at 0RECV_B0<1"));
    EXPECT_THAT(error.what(), HasSubstr(">0RECV_B0<1<"));  // the bad cell in the grid
  }
}
TEST(Validate, Group3OnlyWithoutBuffers) {
  // Both ranks send before they receive: fine with a buffer, a hang without.
  Schedule schedule = base();
  auto& first = schedule.ranks[0].prologue;
  auto& second = schedule.ranks[1].prologue;
  const auto send_before = [](std::vector<Action>& list, const std::string& send, const std::string& receive) {
    const std::size_t at = find(list, send), to = find(list, receive);
    const Action action = list[at];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(std::min(at, to)), action);
  };
  send_before(first, "0SEND_F2>1", "0RECV_B1<1");
  send_before(second, "1SEND_B1>0", "1RECV_F2<0");
  ValidationOptions buffered;
  buffered.unbuffered = false;
  EXPECT_FALSE(find_violation(schedule, buffered).has_value());
  expect_group(schedule, RuleGroup::Deadlock);
}
TEST(Validate, Group4AReceiveOutOfOrder) {
  Schedule schedule = base("gpipe");
  auto& list = schedule.ranks[1].prologue;
  std::swap(list[find(list, "1RECV_F0<0")], list[find(list, "1RECV_F1<0")]);
  std::swap(list[find(list, "1F0v0")], list[find(list, "1F1v0")]);
  expect_group(schedule, RuleGroup::Matching);
}
TEST(Validate, Group5AVersionThatIsNotThereYet) {
  Schedule schedule = base("1f1b-async");
  auto& list = schedule.ranks[0].prologue;
  list[find(list, "0F1v0")].version = 1;
  expect_group(schedule, RuleGroup::Versions);
}
TEST(Validate, Group5ABackwardOnOtherWeightsThanItsForward) {
  Schedule schedule = base("1f1b-async");
  auto& list = schedule.ranks[0].prologue;
  list[find(list, "0B1v0")].version = 1;
  expect_group(schedule, RuleGroup::Versions);
}
TEST(Validate, Group5AFlushThatDoesNotFlush) {
  Schedule schedule = base("1f1b-async");
  schedule.policy = "flush";
  expect_group(schedule, RuleGroup::Versions);
}
TEST(Validate, Group6AGradientAfterItsStep) {
  Schedule schedule = base("gpipe", {{0}}, 2);
  auto& list = schedule.ranks[0].prologue;
  std::swap(list[find(list, "0O1v0")], list[find(list, "0B0v0")]);
  expect_group(schedule, RuleGroup::Accumulation);
}
TEST(Validate, Group7MoreThanTheMemoryHolds) {
  ValidationOptions options;
  options.memory = MemoryModel{};
  options.memory->activation = {2, 2};
  options.memory->limit = {8, 8};
  EXPECT_FALSE(find_violation(base("gpipe"), options).has_value());  // four activations of 2
  options.memory->limit = {7, 8};
  expect_group(base("gpipe"), RuleGroup::Memory, options);
}
TEST(Validate, Group8CollectivesInTwoOrders) {
  Schedule schedule = base("chimera", {{0, 1}, {1, 0}}, 4);
  auto& list = schedule.ranks[0].prologue;
  const std::size_t first = find(list, "0REDUCE3"), second = find(list, "1REDUCE3");
  std::vector<Action> tail(list.begin() + static_cast<std::ptrdiff_t>(first), list.end());
  std::rotate(list.begin() + static_cast<std::ptrdiff_t>(first), list.begin() + static_cast<std::ptrdiff_t>(second), list.end());
  expect_group(schedule, RuleGroup::Collectives);
}
TEST(Validate, Group9ABackwardOnAnotherReplica) {
  Schedule schedule = base("1f1b-async", {{0, 1}, {2}}, 4);
  auto& list = schedule.ranks[0].prologue;
  list[find(list, "0B2v0")].micro_batch = 3;
  expect_group(schedule, RuleGroup::Placement);
}
TEST(Validate, AVersionForEveryBoundOfTheStore) {
  ValidationOptions options;
  options.max_versions = {2, 1};
  EXPECT_FALSE(find_violation(base("1f1b-async"), options).has_value());
  options.max_versions = {1, 1};
  expect_group(base("1f1b-async"), RuleGroup::Versions, options);
}

}  // namespace
}  // namespace pipedream
