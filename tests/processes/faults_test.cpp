#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "program.hpp"

namespace pipedream::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr auto kDeadline = seconds(4);
/// What everyone has from the fault on.
constexpr auto kLimit = kDeadline + seconds(5);

/// Trains for minutes.
std::vector<std::string> endless_run(const std::filesystem::path& folder, const std::vector<std::string>& more, const std::string& iterations = "2") {
  std::vector<std::string> all{"train",
                               "--model",
                               "mlp:layers=4,width=32",
                               "--data",
                               "synthetic-images:samples=65536,size=8",
                               "--micro-batch",
                               "8",
                               "--no-baseline",
                               "--threads",
                               "1",
                               "--profile-iterations",
                               iterations,
                               "--transport",
                               "gloo",
                               "--epochs",
                               "20",
                               "--no-evaluation",
                               "--deadline",
                               "4s",
                               "--run",
                               (folder / "run").string()};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::size_t count_of(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

/// One error on standard error, and its code; no rank is left, no file is half written.
void expect_one_clean_failure(const Finished& run, const std::map<int, pid_t>& ranks, const std::filesystem::path& folder) {
  EXPECT_EQ(run.code, 5) << run.err;
  EXPECT_EQ(count_of(run.err, "error:"), 1U) << run.err;
  for (const auto& [rank, process] : ranks) EXPECT_FALSE(is_running(process)) << "rank " << rank;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") {
      EXPECT_TRUE(nlohmann::json::accept(text_of(entry.path()))) << entry.path();
    }
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("tmp")));
  }
}

/// Starts an endless run and waits until it trains for a while.
struct Running {
  std::filesystem::path folder = scratch_folder();
  Program program;
  std::map<int, pid_t> ranks;

  Running(int num_ranks, milliseconds while_, const std::vector<std::string>& more) : program(endless_run(folder, more)) {
    // The schedule is written last before the ranks set out.
    EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder / "run/schedule.csv"); }));
    std::this_thread::sleep_for(milliseconds(300) + while_);
    ranks = program.ranks();
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(num_ranks));
  }
};

class KilledRank : public testing::TestWithParam<int> {};

TEST_P(KilledRank, EndsTheRunAndIsNamed) {
  const int rank = GetParam();
  Running run(3, milliseconds(137 * rank), {"--stages", "1-1-1"});
  ASSERT_EQ(run.ranks.count(rank), 1U);
  ::kill(run.ranks[rank], SIGKILL);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, HasSubstr("rank " + std::to_string(rank) + " was ended by signal 9 (Killed)"));
  // Somebody waited for something of it, or it is said to be gone.
  EXPECT_THAT(finished.err, testing::ContainsRegex("waited .* for the (activation|gradient) of micro-batch|is gone|does not answer"));
}
INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, testing::Values(0, 1, 2));

TEST(KilledRank, TakesAllRanksOfItsProcessAlong) {
  Running run(2, milliseconds(100), {"--stages", "1-1-1", "--ranks-per-process", "1,2"});  // RANK counts processes
  ASSERT_EQ(run.ranks.count(1), 1U);
  ::kill(run.ranks[1], SIGKILL);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, HasSubstr("process 1 (ranks 1 to 2) was ended by signal 9 (Killed)"));
  EXPECT_THAT(finished.err, testing::ContainsRegex("rank 2: its process is gone"));
}

TEST(KilledRank, TheFirstOfSeveralRanksAsWell) {
  Running run(2, milliseconds(100), {"--stages", "1-1-1", "--ranks-per-process", "2,1"});
  ASSERT_EQ(run.ranks.count(0), 1U);
  ::kill(run.ranks[0], SIGKILL);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, HasSubstr("process 0 (ranks 0 to 1) was ended by signal 9 (Killed)"));
}

TEST(KilledRank, BeforeTheRunHasBegunAsWell) {
  const auto folder = scratch_folder();
  Program program(endless_run(folder, {"--ranks", "2"}, "10000"));
  ASSERT_TRUE(eventually([&] { return program.ranks().size() == 2; }));
  std::this_thread::sleep_for(milliseconds(500));
  const auto ranks = program.ranks();
  ::kill(ranks.at(1), SIGKILL);
  const Finished finished = program.wait(kLimit);
  expect_one_clean_failure(finished, ranks, folder);
  EXPECT_THAT(finished.err, HasSubstr("rank 1"));
}

TEST(KilledRank, OfAsynchronousDataParallelismAsWell) {
  Running run(3, milliseconds(200), {"--ranks", "3", "--schedule", "asp"});
  ASSERT_EQ(run.ranks.count(1), 1U);
  ::kill(run.ranks[1], SIGKILL);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, HasSubstr("rank 1 was ended by signal 9 (Killed)"));
}

TEST(StalledPeer, OfAsynchronousDataParallelismAsWell) {
  Running run(2, milliseconds(200), {"--ranks", "2", "--schedule", "asp"});
  ASSERT_EQ(run.ranks.count(1), 1U);
  ::kill(run.ranks[1], SIGSTOP);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, testing::ContainsRegex("rank 0 waited [0-9.]+ s for the (weights after|gradient of) micro-batch [0-9]+ \\(rank 1\\)"));
}

class StalledRank : public testing::TestWithParam<int> {};

TEST_P(StalledRank, RunsIntoTheDeadlineAndIsNamed) {
  const int rank = GetParam();
  Running run(2, milliseconds(200), {"--stages", "1-1"});
  ASSERT_EQ(run.ranks.count(rank), 1U);
  ::kill(run.ranks[rank], SIGSTOP);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err,
              testing::ContainsRegex("rank " + std::to_string(1 - rank) +
                                     " waited [0-9.]+ s for the (activation|gradient) of micro-batch [0-9]+ from stage " + std::to_string(rank)));
  EXPECT_THAT(finished.err, HasSubstr("rank " + std::to_string(rank) + " did not stop by itself and was killed"));
}
INSTANTIATE_TEST_SUITE_P(Ranks, StalledRank, testing::Values(0, 1));

TEST(SlowRank, HoldsTheOthersUpAndLosesNothing) {
  const auto folder = scratch_folder();
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all{"train",
                                 "--model",
                                 "mlp:layers=4,width=32",
                                 "--data",
                                 "synthetic-images:samples=24000,size=8",
                                 "--micro-batch",
                                 "8",
                                 "--no-baseline",
                                 "--threads",
                                 "1",
                                 "--no-evaluation",
                                 "--deadline",
                                 "4s"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Finished threads = Program(run({"--profile-iterations", "2", "--stages", "1-1", "--run", folder / "threads"})).wait();
  ASSERT_EQ(threads.code, 0) << threads.err;
  Program program(run({"--plan", folder / "threads/plan.json", "--transport", "gloo", "--run", folder / "slow"}));
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder / "slow/schedule.csv"); }));
  const auto ranks = program.ranks();
  ASSERT_EQ(ranks.size(), 2U);
  for (const int rank : {1, 0, 1}) {  // each time for a good part of the deadline
    std::this_thread::sleep_for(milliseconds(150));
    ::kill(ranks.at(rank), SIGSTOP);
    std::this_thread::sleep_for(milliseconds(1500));
    ::kill(ranks.at(rank), SIGCONT);
  }
  const Finished slow = program.wait(seconds(60));
  ASSERT_EQ(slow.code, 0) << slow.err;
  EXPECT_TRUE(text_of(folder / "slow/checkpoints/final.safetensors") == text_of(folder / "threads/checkpoints/final.safetensors"));
}

TEST(KilledLauncher, TakesItsRanksAlong) {
  Running run(2, milliseconds(100), {"--stages", "1-1"});
  run.program.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_running(run.ranks[0]) && !is_running(run.ranks[1]); }, seconds(5)));
}

TEST(Interrupt, EndsAllRanksWithOneMessage) {
  Running run(2, milliseconds(100), {"--stages", "1-1"});
  run.program.send(SIGTERM);
  const Finished finished = run.program.wait(kLimit);
  expect_one_clean_failure(finished, run.ranks, run.folder);
  EXPECT_THAT(finished.err, HasSubstr("interrupted"));
}

// --- What goes wrong at the start, with processes that another launcher has started ------------------------------------------------------------

std::vector<std::string> short_run(const std::vector<std::string>& more) {
  std::vector<std::string> all{"--steps", "3", "--no-evaluation", "--deadline", "2s"};
  all.insert(all.end(), more.begin(), more.end());
  return small_run(all);
}

TEST(Start, ARankThatNeverComesIsNamed) {
  const int port = free_tcp_port();
  Program first(short_run({"--ranks", "3"}), rank_variables(0, 3, port)), third(short_run({"--ranks", "3"}), rank_variables(2, 3, port));
  const Finished a = first.wait(seconds(7)), b = third.wait(seconds(7));
  EXPECT_EQ(a.code, 5);
  EXPECT_EQ(b.code, 5);
  EXPECT_THAT(a.err + b.err, testing::ContainsRegex("waited 2.00 s for 3 ranks to start; 2 did: missing 1"));
}

TEST(Start, APortInUseIsNamed) {
  const PortInUse somebody;
  const int port = somebody.port();
  const Finished other = Program(short_run({"--ranks", "2"}), rank_variables(0, 2, port)).wait(seconds(15));
  EXPECT_EQ(other.code, 5);
  EXPECT_THAT(other.err, HasSubstr("cannot listen at 127.0.0.1 port " + std::to_string(port) + ": Address already in use"));
  EXPECT_THAT(other.err, HasSubstr("set MASTER_PORT"));
}

TEST(Start, TwoRunsAtOnceDoNotMeet) {
  std::vector<Program> programs;
  for (const int port : {free_tcp_port(), free_tcp_port()})
    for (const int rank : {0, 1})
      programs.emplace_back(small_run({"--ranks", "2", "--steps", "3", "--no-evaluation"}), rank_variables(rank, 2, port));
  for (auto& program : programs) {
    const Finished finished = program.wait();
    EXPECT_EQ(finished.code, 0) << finished.err;
  }
}

/// The errors of two ranks, started with these arguments and world sizes; both must end with code 5 and one of them must speak.
std::string errors_of_two(const std::vector<std::string>& first_arguments, const std::vector<std::string>& second_arguments, int second_size = 2,
                          const std::filesystem::path& first_folder = {}, const std::filesystem::path& second_folder = {}) {
  const int port = free_tcp_port();
  Program first(first_arguments, rank_variables(0, 2, port), first_folder),
      second(second_arguments, rank_variables(1, second_size, port), second_folder);
  const Finished a = first.wait(seconds(15)), b = second.wait(seconds(15));
  EXPECT_EQ(a.code, 5) << a.err;
  EXPECT_EQ(b.code, 5) << b.err;
  return a.err + b.err;
}

TEST(Start, AnotherWorldSizeIsNamed) {
  EXPECT_THAT(errors_of_two(short_run({"--ranks", "2"}), short_run({"--ranks", "2"}), 3),
              HasSubstr("was started as one of 3 ranks, rank 0 as one of 2"));
}

TEST(Start, APlanOfMoreRanksIsNamed) {
  EXPECT_THAT(errors_of_two(short_run({"--ranks", "3"}), short_run({"--ranks", "3"})), HasSubstr("the run has 3 ranks and 2 processes were started"));
}

TEST(Start, OtherSettingsAreNamed) {
  const std::string errors = errors_of_two(short_run({"--ranks", "2"}), short_run({"--ranks", "2", "--lr", "0.5"}));
  EXPECT_THAT(errors, HasSubstr("rank 1 has another settings than rank 0: lr = 0.5, rank 0 has lr = 0.01"));
  EXPECT_EQ(count_of(errors, "error:"), 1U) << errors;
}

TEST(Start, OtherDataIsNamed) {
  const auto folder = scratch_folder();
  std::vector<std::filesystem::path> folders;
  for (const char* name : {"first", "second"}) {
    folders.push_back(folder / name);
    std::filesystem::create_directories(folders.back());
    std::ofstream(folders.back() / "text.txt") << std::string(20000, name[0]);
  }
  const std::vector<std::string> arguments{"train",
                                           "--model",
                                           "gpt:blocks=1,width=16,heads=2,context=8",
                                           "--data",
                                           "text:text.txt",
                                           "--no-baseline",
                                           "--steps",
                                           "3",
                                           "--no-evaluation",
                                           "--ranks",
                                           "2",
                                           "--profile-iterations",
                                           "2",
                                           "--threads",
                                           "1"};
  EXPECT_THAT(errors_of_two(arguments, arguments, 2, folders[0], folders[1]), HasSubstr("rank 1 has another data than rank 0: "));
}

}  // namespace
}  // namespace pipedream::test
