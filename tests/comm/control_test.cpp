#include "pipedream/comm/control.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "pipedream/comm/socket.hpp"
#include "pipedream/core/error.hpp"
#include "ranks.hpp"

namespace pipedream::test {
namespace {

using testing::Each;
using testing::HasSubstr;

ControlOptions options_at(int port, int rank, int world_size) {
  ControlOptions options;
  options.rank = rank;
  options.world_size = world_size;
  options.port = port;
  options.version = "1";
  options.deadline = std::chrono::milliseconds(1500);
  return options;
}

std::string error_of(const ControlOptions& options) {
  try {
    const auto group = ControlGroup::join(options);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // an error of another rank may still come
    group->check_alive();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Joins with all these options at once.
std::vector<std::string> errors_of(const std::vector<ControlOptions>& all) {
  std::vector<std::string> errors(all.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < all.size(); ++i) threads.emplace_back([&, i] { errors[i] = error_of(all[i]); });
  threads.clear();
  return errors;
}

TEST(Control, KeysReachEverybodyAndNumbersAdd) {
  std::atomic<int> right{0};
  const auto errors = run_control(3, [&](const auto& group) {
    if (group->rank() == 1) group->set("plan", std::string(1 << 20, 'p'));
    EXPECT_EQ(group->get("plan", "the plan").size(), std::size_t{1} << 20);
    (void)group->add("count", group->rank() + 1);
    while (group->add("count", 0) < 6) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++right;
    group->agree("settings", "equal");
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(right, 3);
}

TEST(Control, TheFirstReasonWinsAndOneRankReportsIt) {
  std::atomic<int> reporters{0};
  const auto errors = run_control(3, [&](const auto& group) {
    group->set_doing("testing");
    if (group->rank() == 2) (void)group->abort("rank 2 has had enough");
    while (group->abort_reason().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(group->abort("too late"), "rank 2 has had enough");
    reporters += group->is_reporter() ? 1 : 0;
    EXPECT_EQ(group->is_reporter(), group->rank() == 2);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(reporters, 1);
}

TEST(Control, ARankThatNeverStartsIsNamed) {
  const int port = free_port();
  const auto errors = errors_of({options_at(port, 0, 4), options_at(port, 2, 4), options_at(port, 3, 4)});
  for (const auto& error : errors) EXPECT_THAT(error, testing::ContainsRegex("rank [023] waited 1.50 s for 4 ranks to start; 3 did: missing 1"));
}

TEST(Control, WithoutRank0TheOthersSayWhereTheyLooked) {
  const int port = free_port();
  EXPECT_THAT(error_of(options_at(port, 1, 2)), HasSubstr("rank 1 waited 1.50 s for rank 0 to listen at 127.0.0.1 port " + std::to_string(port)));
}

TEST(Control, APortInUseIsNamed) {
  const Socket other = listen_at("127.0.0.1", 0);
  EXPECT_THAT(error_of(options_at(other.local_port(), 0, 2)),
              HasSubstr("cannot listen at 127.0.0.1 port " + std::to_string(other.local_port()) + ": Address already in use"));
}

TEST(Control, AnotherVersionEndsTheRunForAll) {
  const int port = free_port();
  auto other = options_at(port, 1, 2);
  other.version = "2";
  for (const auto& error : errors_of({options_at(port, 0, 2), other})) EXPECT_THAT(error, HasSubstr("runs pipedream 2, rank 0 runs 1"));
}

TEST(Control, AnotherWorldSizeEndsTheRunForAll) {
  const int port = free_port();
  for (const auto& error : errors_of({options_at(port, 0, 2), options_at(port, 1, 3)}))
    EXPECT_THAT(error, HasSubstr("was started as one of 3 ranks, rank 0 as one of 2"));
}

TEST(Control, AStrangerIsSentAwayAndTheRunGoesOn) {
  const int port = free_port();
  auto first = options_at(port, 0, 2), second = options_at(port, 1, 2), stranger = options_at(port, 1, 2);
  first.token = second.token = "a";
  stranger.token = "b";
  const auto errors = errors_of({first, stranger, second});
  EXPECT_EQ(errors[0], "");
  EXPECT_THAT(errors[1], testing::AnyOf(HasSubstr("another run uses this address and port"), HasSubstr("for rank 0 to listen")));
  EXPECT_EQ(errors[2], "");
}

TEST(Control, GarbageFromAStrangerDoesNoHarm) {
  const auto errors = run_control(2, [&](const auto& group) {
    if (group->rank() == 1) {
      for (const char* text : {"", "x", "GET / HTTP/1.1"}) {
        const Socket socket = try_connect("127.0.0.1", group->port(), "", std::chrono::seconds(1));
        (void)socket.send_frame(text);
      }
    }
    group->agree("nothing", "changed");
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Control, DifferentDataIsNamedOnAllRanks) {
  const auto errors = run_control(2, [](const auto& group) { group->agree("data", group->rank() == 0 ? "60000 samples" : "10 samples"); });
  for (const auto& error : errors) EXPECT_THAT(error, HasSubstr("rank 1 has another data than rank 0: 10 samples, rank 0 has 60000 samples"));
}

TEST(Control, AnInterfaceThatDoesNotExistListsThoseThatDo) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  try {
    (void)address_of_interface("no-such");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.hint(), HasSubstr("lo"));
  }
}

}  // namespace
}  // namespace pipedream::test
