#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <thread>

#include "program.hpp"

/// Ranks on pretended hosts: network namespaces with rate-limited links, made by scripts/hosts.sh. No address outside of them is used.
namespace pipedream::test {
namespace {

constexpr int kNotPermitted = 77;

std::vector<std::string> on_hosts(int hosts, const std::string& rate, const std::vector<std::string>& arguments) {
  std::vector<std::string> all{PIPEDREAM_SOURCE_DIR "/scripts/hosts.sh", std::to_string(hosts), rate, PIPEDREAM_BINARY_DIR "/pipedream"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

struct HostsCase {
  int hosts;
  std::string rate, stages;
};
void PrintTo(const HostsCase& c, std::ostream* out) { *out << c.hosts << "_hosts_" << c.rate << "_" << c.stages; }

class Hosts : public testing::TestWithParam<HostsCase> {};

TEST_P(Hosts, TrainAsThreadsDoBitForBit) {
  const auto& [hosts, rate, stages] = GetParam();
  const auto folder = scratch_folder();
  const Finished threads = Program(small_run({"--stages", stages, "--epochs", "1", "--run", folder / "threads"})).wait();
  ASSERT_EQ(threads.code, 0) << threads.err;
  const Finished spread =
      Program(on_hosts(hosts, rate, small_run({"--plan", folder / "threads/plan.json", "--epochs", "1", "--run", folder / "hosts"}))).wait();
  if (spread.code == kNotPermitted) GTEST_SKIP() << spread.err;
  ASSERT_EQ(spread.code, 0) << spread.err;
  const std::string weights = text_of(folder / "threads/checkpoints/final.safetensors");
  EXPECT_GT(weights.size(), 1000U);
  EXPECT_TRUE(text_of(folder / "hosts/checkpoints/final.safetensors") == weights);
}
INSTANTIATE_TEST_SUITE_P(Rates, Hosts,
                         testing::Values(HostsCase{2, "1gbit", "1-1"}, HostsCase{2, "100mbit", "2"}, HostsCase{4, "1gbit", "2-1-1"},
                                         HostsCase{4, "100mbit", "1-2-1"}));

struct LinkFault {
  std::string name, command;  ///< what happens to the link of host 1, at the switch: after "ip" or "tc" and the namespace
  std::string tool;
};
void PrintTo(const LinkFault& fault, std::ostream* out) { *out << fault.name; }

class HostsFault : public testing::TestWithParam<LinkFault> {};
INSTANTIATE_TEST_SUITE_P(Links, HostsFault,
                         testing::Values(LinkFault{"cut", "link set port1 down", "ip"},
                                         // What goes to host 1 is dropped without a word; what comes from it arrives.
                                         LinkFault{"stalled", "qdisc replace dev port1 root bfifo limit 1", "tc"}));

TEST_P(HostsFault, RunsIntoTheDeadlineAndIsNamed) {
  const auto folder = scratch_folder();
  Program program(on_hosts(2, "1gbit",
                           {"train",
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
                            "2",
                            "--epochs",
                            "20",
                            "--no-evaluation",
                            "--deadline",
                            "3s",
                            "--ranks",
                            "2",
                            "--run",
                            (folder / "run").string()}));
  const bool started = eventually([&] { return std::filesystem::exists(folder / "run/schedule.csv") || !is_running(program.process()); });
  ASSERT_TRUE(started);
  if (!is_running(program.process())) {
    const Finished early = program.wait();
    if (early.code == kNotPermitted) GTEST_SKIP() << early.err;
    FAIL() << early.err;
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string fault = GetParam().tool + " -n pd" + std::to_string(program.process()) + "-s " + GetParam().command;
  ASSERT_EQ(std::system(fault.c_str()), 0);
  const Finished finished = program.wait(std::chrono::seconds(3 + 5));
  EXPECT_EQ(finished.code, 5) << finished.err;
  EXPECT_THAT(finished.err.substr(finished.err.find("error:")),
              testing::ContainsRegex("rank [01] waited 3.00 s for the (activation|gradient) of micro-batch [0-9]+ from stage [01]"));
}

}  // namespace
}  // namespace pipedream::test
