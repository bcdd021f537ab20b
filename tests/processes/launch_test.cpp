#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "program.hpp"

namespace pipedream::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// The losses of metrics.jsonl, as they are printed: equal text is equal bits.
std::vector<std::string> losses_of(const std::filesystem::path& run) {
  std::vector<std::string> losses;
  std::istringstream lines(text_of(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("\"loss\":") + 7;
    losses.push_back(line.substr(begin, line.find(',', begin) - begin));
  }
  return losses;
}

double final_loss_of(const std::filesystem::path& run) { return nlohmann::json::parse(text_of(run / "summary.json"))["final_loss"].get<double>(); }

class ProcessesEqualThreads : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(ProcessesEqualThreads, BitForBitOnTheSamePlan) {
  const auto folder = scratch_folder();
  std::vector<std::string> options = GetParam();
  options.insert(options.end(), {"--epochs", "2", "--run", folder / "threads"});
  const Finished threads = Program(small_run(options)).wait();
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Finished processes =
      Program(small_run({"--plan", folder / "threads/plan.json", "--transport", "gloo", "--epochs", "2", "--run", folder / "processes"})).wait();
  ASSERT_EQ(processes.code, 0) << processes.err;
  const auto losses = losses_of(folder / "threads");
  EXPECT_GE(losses.size(), 8U);
  EXPECT_EQ(losses_of(folder / "processes"), losses);
  EXPECT_EQ(final_loss_of(folder / "processes"), final_loss_of(folder / "threads"));  // of the test set, with the last weights
  const std::string weights = text_of(folder / "threads/checkpoints/final.safetensors");
  EXPECT_GT(weights.size(), 1000U);
  EXPECT_TRUE(text_of(folder / "processes/checkpoints/final.safetensors") == weights);
  EXPECT_THAT(processes.out, HasSubstr("efficiency"));
  EXPECT_THAT(processes.out.substr(processes.out.find("efficiency") + 1), Not(HasSubstr("efficiency")));  // one rank speaks
}

INSTANTIATE_TEST_SUITE_P(Plans, ProcessesEqualThreads,
                         testing::Values(std::vector<std::string>{"--stages", "1-1"}, std::vector<std::string>{"--stages", "2-1"},
                                         std::vector<std::string>{"--stages", "1-2", "--schedule", "1f1b", "--micro-batches", "3"},
                                         std::vector<std::string>{"--ranks", "2", "--schedule", "data-parallel"}));

TEST(Launch, StartsItsRanksAndPlansOnce) {
  const Finished run = Program(small_run({"--transport", "gloo", "--ranks", "3", "--steps", "5", "--no-evaluation"})).wait();
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("3 processes"));
  EXPECT_THAT(run.err.substr(run.err.find("measuring the layers") + 5), Not(HasSubstr("measuring the layers")));
}

struct LauncherCase {
  std::string name;
  std::function<std::map<std::string, std::string>(int rank, int port)> variables;
};
void PrintTo(const LauncherCase& c, std::ostream* out) { *out << c.name; }

class UnderALauncher : public testing::TestWithParam<LauncherCase> {};

TEST_P(UnderALauncher, TheProcessesFindTheirPlaces) {
  const int port = free_tcp_port();
  const auto folder = scratch_folder();
  std::vector<Program> programs;
  // No --transport: the launcher's variables say that there are processes. Rank 1 first.
  for (const int rank : {1, 0})
    programs.emplace_back(small_run({"--ranks", "2", "--steps", "5", "--no-evaluation", "--run", folder / "run"}), GetParam().variables(rank, port));
  const Finished second = programs[0].wait(), first = programs[1].wait();
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(first.out, HasSubstr("efficiency"));
  EXPECT_EQ(second.out, "");
  EXPECT_TRUE(std::filesystem::exists(folder / "run/summary.json"));
}

INSTANTIATE_TEST_SUITE_P(Launchers, UnderALauncher,
                         testing::Values(LauncherCase{"by_hand", [](int rank, int port) { return rank_variables(rank, 2, port); }},
                                         LauncherCase{"mpirun",
                                                      [](int rank, int) -> std::map<std::string, std::string> {
                                                        return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                                                                {"OMPI_COMM_WORLD_SIZE", "2"},
                                                                {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(rank)},
                                                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                                {"PMIX_NAMESPACE", std::to_string(::getpid())}};
                                                      }},
                                         LauncherCase{"srun",
                                                      [](int rank, int port) -> std::map<std::string, std::string> {
                                                        return {{"SLURM_PROCID", std::to_string(rank)},
                                                                {"SLURM_NTASKS", "2"},
                                                                {"SLURM_LOCALID", std::to_string(rank)},
                                                                {"SLURM_JOB_ID", "1"},
                                                                {"SLURM_STEP_ID", "0"},
                                                                {"SLURM_STEP_NODELIST", "localhost"},
                                                                {"MASTER_ADDR", "127.0.0.1"},
                                                                {"MASTER_PORT", std::to_string(port)}};
                                                      }}),
                         testing::PrintToStringParamName());

TEST(Launch, NothingListensElsewhere) {
  Program run(small_run({"--transport", "gloo", "--interface", "lo", "--ranks", "2", "--epochs", "1000", "--no-evaluation"}));
  ASSERT_TRUE(eventually([&] { return run.ranks().size() == 2; }));
  // Sockets in the listening state (0A) of each rank, by their inodes.
  const auto listening = [](pid_t process) {
    std::vector<std::string> addresses;
    std::string inodes;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd", error))
      inodes += std::filesystem::read_symlink(entry.path(), error).string() + "\n";
    for (const char* table : {"tcp", "tcp6"}) {
      std::istringstream lines(text_of("/proc/" + std::to_string(process) + "/net/" + table));
      for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::vector<std::string> fields;
        for (std::string word; words >> word;) fields.push_back(word);
        if (fields.size() > 9 && fields[3] == "0A" && inodes.find("socket:[" + fields[9] + "]") != std::string::npos)
          addresses.push_back(fields[1].substr(0, fields[1].find(':')));
      }
    }
    return addresses;
  };
  bool seen = false;
  for (int i = 0; i < 200; ++i) {  // from the start until they train
    for (const auto& [rank, process] : run.ranks())
      for (const auto& address : listening(process)) {
        EXPECT_EQ(address, "0100007F") << "rank " << rank;  // 127.0.0.1
        seen = true;
      }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace pipedream::test
