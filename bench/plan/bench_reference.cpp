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

namespace {

using namespace pipedream;

constexpr double kGiB = 1024.0 * 1024 * 1024;

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

struct DnnRow {
  const char* file;
  double with_cpu, without_cpu;
  const char* theirs;  // CPU s / MB of their dp
};

void dnn_rows(const std::filesystem::path& folder) {
  const std::vector<DnnRow> rows{{"LayerGraphs/bert24_inference", 17.789906, 17.789906, "0.00 / 4"},
                                 {"LayerGraphs/bert24_training", 41.745812, 41.745812, "0.00 / 4"},
                                 {"LayerGraphs/gnmt_inference", 32.910658, 32.910658, "17.0 / 549"},
                                 {"LayerGraphs/resnet50_inference", 33.774666, 34.222852, "0.16 / 6"},
                                 {"LayerGraphs/resnet50_training", 78.631813, 80.454887, "0.22 / 6"},
                                 {"LayerGraphs/inceptionv3_inference", 51.551864, 52.201632, "> 330 / 18,500"},
                                 {"OperatorGraphs/bert_l-3_inference", 27.918568, 27.918568, "1.57 / 29"},
                                 {"OperatorGraphs/bert_l-3_training", 65.303149, 65.303149, "6.75 / 75"},
                                 {"OperatorGraphs/bert_l-6_inference", 29.579506, 33.989102, "4.79 / 57"},
                                 {"OperatorGraphs/bert_L-12_training", 437.997638, 437.997638, "31.4 / 143"},
                                 {"OperatorGraphs/resnet50_inference", 124.348850, 128.073511, "0.18 / 6"}};
  for (const DnnRow& r : rows)
    for (const bool cpu : {true, false})
      row(fmt::format("{}{}", r.file, cpu ? "" : ", no CPU"), cpu ? r.with_cpu : r.without_cpu, 6e-7, cpu ? r.theirs : "", [&] {
        const std::string file = folder / (std::string(r.file) + ".json");
        const Plan plan = plan_dnn_partitioning(read_file(file), file, {-1, cpu ? -1 : 0, -1});
        return std::make_pair(plan.predicted.period_ms, plan.predicted.certified);
      });
}

struct PiperRow {
  const char* name;
  const char* file;
  int more_layers;
  double memory_gib;
  int devices, micro_batches;
  double value;
  const char* theirs;
  const char* note = "";  // their own optimum where it is worse
};

void piper_rows(const std::filesystem::path& folder) {
  const std::vector<PiperRow> rows{{"bert32", "bert32a100", 0, 8, 8, 480, 0.16585575, "0.06 / 4"},
                                   {"bert32", "bert32a100", 0, 8, 64, 512, 0.0209573379, "0.22 / 6"},
                                   {"bert32", "bert32a100", 0, 8, 512, 1920, 0.00256112785, "3.9 / 112"},
                                   {"bert32", "bert32a100", 0, 8, 1024, 1920, 0.00130317952, "11.8 / 418"},
                                   {"bert32", "bert32a100", 0, 8, 2048, 1920, 0.000703591184, "60.3 / 1,520"},
                                   {"bert32", "bert32a100", 0, 1, 128, 1920, 0.03887175, "0.32 / 11"},
                                   {"bert32", "bert32a100", 0, 2, 512, 1920, 0.00366752626, "2.5 / 112"},
                                   {"bert32", "bert32a100", 0, 80, 1024, 1920, 0.00115875734, "18.5 / 418"},
                                   {"bert96", "bert32a100", 64, 8, 64, 480, 0.0658230457, "4.7 / 9"},
                                   {"bert96", "bert32a100", 64, 8, 512, 480, 0.00837286695, "27.0 / 251"},
                                   {"bert96", "bert32a100", 64, 8, 1024, 1920, 0.00414268034, "80.6 / 1,006"},
                                   {"gnmt, ms", "gnmt", 0, 1.2, 8, 256, 68.565564, "525 / 203"},
                                   {"resnet, ms", "resnet", 0, 4, 8, 7680, 73.493286, "5.4 / 5"},
                                   {"resnet, ms", "resnet", 0, 2, 32, 7680, 24.0313985, "10.7 / 8", "; Piper: 24.6258985"},
                                   {"resnet, ms", "resnet", 0, 2, 128, 7680, 5.36082032, "", "; Piper: 5.40607819"}};
  for (const PiperRow& r : rows) {
    const double last_digit = std::pow(10, std::floor(std::log10(r.value)) - 8);  // nine are given
    row(fmt::format("{}, {} x {} GiB, m={}{}", r.name, r.devices, r.memory_gib, r.micro_batches, r.note), r.value, 0.51 * last_digit, r.theirs, [&] {
      const std::string file = folder / (std::string(r.file) + ".json");
      PiperGraph graph = read_piper(read_file(file), file);
      if (r.more_layers > 0) graph = repeat_layer(graph, 33, 34, 35, r.more_layers);
      PiperOptions options;
      options.memory_bytes = r.memory_gib * kGiB;
      options.devices = r.devices;
      options.micro_batches = r.micro_batches;
      options.bandwidth = 25 * kGiB;
      const PiperPlan plan = plan_piper(graph, options);
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
