// The published workloads of dnn-partitioning and Piper in their own cost models: our optimum beside the reference value, CPU time and peak memory of
// a process per row. Every row checks its answer and its certificate; the exit code is 1 if one is wrong. Reference times are those of the projects'
// own code as given in the planner research notes, sections 2.1 and 2.2, measured on another machine. Usage: bench_reference [folder with
// dnn-partitioning/ and piper/]; the default is ../shared/data/planner.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/plan/dnn_partitioning.hpp"
#include "pipedream/plan/piper.hpp"
#include "tests/plan/published_optima.hpp"

namespace {

using namespace pipedream;

struct Answer {
  double value = 0, seconds = 0;
  bool certified = false;
  long peak_kib = 0;
};

// In a process of its own, so that the peak is the row's.
Answer in_process(const std::function<std::pair<double, bool>()>& work) {
  int ends[2];
  PD_CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::pair<double, bool> result{0, false};
    try {
      result = work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "error: {}\n", error.what());
    }
    const bool written = write(ends[1], &result, sizeof result) == static_cast<ssize_t>(sizeof result);
    _exit(written ? 0 : 1);
  }
  PD_CHECK(child > 0);
  std::pair<double, bool> result{0, false};
  close(ends[1]);
  PD_CHECK(read(ends[0], &result, sizeof result) == static_cast<ssize_t>(sizeof result));
  close(ends[0]);
  rusage usage{};
  PD_CHECK(wait4(child, nullptr, 0, &usage) == child);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return {result.first, seconds(usage.ru_utime) + seconds(usage.ru_stime), result.second, usage.ru_maxrss};
}

bool all_right = true;

void row(const std::string& name, double reference, double tolerance, const char* theirs, const std::function<std::pair<double, bool>()>& work) {
  const Answer a = in_process(work);
  const bool right = a.certified && std::abs(a.value - reference) <= tolerance;
  all_right = all_right && right;
  fmt::print("{:<50} {:>14.10g} {:>14.10g} {:>8.3f} {:>8} {:>18}  {}\n", name, a.value, reference, a.seconds, a.peak_kib / 1024, theirs,
             right ? "yes" : "NO");
  std::fflush(stdout);
}

void dnn_rows(const std::filesystem::path& folder) {
  for (const test::DnnOptimum& r : test::kDnnOptima)
    for (const bool cpu : {true, false})
      row(fmt::format("{}{}", r.file, cpu ? "" : ", no CPU"), cpu ? r.with_cpu : r.without_cpu, 6e-7, cpu ? r.theirs : "", [&] {
        const std::string file = folder / (std::string(r.file) + ".json");
        const Plan plan = plan_dnn_partitioning(read_file(file), file, {-1, cpu ? -1 : 0, -1});
        return std::make_pair(plan.predicted.period_ms, plan.predicted.certified);
      });
}

void piper_rows(const std::filesystem::path& folder) {
  for (const test::PiperOptimum& r : test::kPiperOptima) {
    const double last_digit = std::pow(10, std::floor(std::log10(r.time)) - 8);
    row(fmt::format("{}, {} x {} GiB, m={}{}", r.name, r.devices, r.memory_gib, r.micro_batches, r.note), r.time, 0.51 * last_digit, r.theirs, [&] {
      const PiperPlan plan = plan_piper(graph_of(r, folder), options_of(r));
      return std::make_pair(plan.time, plan.certified);
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data/planner";
  if (!std::filesystem::exists(folder)) {
    fmt::print("{} is absent: nothing to compare with\n", folder.string());
    return 0;
  }
  fmt::print("{:<50} {:>14} {:>14} {:>8} {:>8} {:>18}  {}\n", "workload", "ours", "reference", "CPU s", "MiB", "theirs: CPU s / MB", "proved, equal");
  dnn_rows(folder / "dnn-partitioning/throughput-inputs");
  piper_rows(folder / "piper");
  return all_right ? 0 : 1;
}
