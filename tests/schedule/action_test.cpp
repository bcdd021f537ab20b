#include "pipedream/schedule/action.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

TEST(Action, PrintsChunkKindMicroBatchAndWhatIsNotDefault) {
  EXPECT_EQ(to_string(Action{ActionKind::Forward, 2, 0}), "2F0");
  EXPECT_EQ(to_string(Action{ActionKind::Step, 0, 3, 0, 2}), "0O3v2");
  EXPECT_EQ(to_string(Action{ActionKind::SendActivation, 0, 3, 0, Action::kNone, 1}), "0SEND_F3>1");
  EXPECT_EQ(to_string(Action{ActionKind::ReceiveActivation, 1, 3, 2, Action::kNone, 0}), "1RECV_F3s2<0");
}

TEST(Action, ReadsWhatItPrints) {
  EXPECT_TRUE(rc::check([] {
    Action action;
    action.kind = static_cast<ActionKind>(*rc::gen::inRange(0, 14));
    action.chunk = *rc::gen::inRange(0, 1000);
    action.micro_batch = *rc::gen::inRange(0, 1 << 30);
    action.slice = *rc::gen::inRange(0, 5);
    action.version = *rc::gen::inRange(-1, 100);
    action.peer = *rc::gen::inRange(-1, 100);
    action.joined = *rc::gen::inRange(0, 2) == 1;
    RC_ASSERT(parse_action(to_string(action), "here") == action);
  }));
}

TEST(Action, ReadsThePyTorchNameOfAReduction) { EXPECT_EQ(parse_action("3REDUCE_GRAD", ""), (Action{ActionKind::Reduce, 3, 0})); }

TEST(Action, RefusesWhatIsNoAction) {
  for (const char* text : {"", "F0", "0", "0F", "0X1", "-1F0", "0F-1", "0F1x", "0F99999999999", "2147483647F0", "0F0v", "0SEND_F3>", "0 F1"})
    EXPECT_THROW(static_cast<void>(parse_action(text, "file.csv:3")), InputError) << text;
}

}  // namespace
}  // namespace pipedream
