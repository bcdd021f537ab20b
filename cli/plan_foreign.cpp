#include "cli/plan_foreign.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/plan_output.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/dnn_partitioning.hpp"
#include "pipedream/plan/piper.hpp"

namespace pipedream::cli {
namespace {

constexpr std::int64_t kNoLimit = 1'000'000'000'000'000'000;
constexpr int kManyDevices = 10'000;  // more would help nobody who has so many

bool given(const CLI::App& command, const std::string& option) { return command.get_option(option)->count() > 0; }

std::vector<std::string> values(const CLI::App& command, const std::string& option) { return split_commas(command.get_option(option)->results()); }

// Options that would be ignored are an error: a result that took no notice of them would be believed.
template <std::size_t N>
void allow(const CLI::App& command, const std::string& cost_model, const std::array<std::string_view, N>& options) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (name == "json" || name == "output" || name == "cost-model" || std::find(options.begin(), options.end(), name) != options.end()) continue;
    throw UsageError(
        fmt::format("--{} has no meaning in the cost model {}", name, cost_model),
        fmt::format("it knows --{}; or convert the graph to a profile first: pipedream convert IN OUT.json", fmt::join(options, ", --")));
  }
}

void write(const CLI::App& command, const std::string& json) {
  if (given(command, "--output")) write_file(command.get_option("--output")->as<std::string>(), json);
  if (given(command, "--json")) fmt::print("{}", json);
}

// 0 is no limit, as in cluster files.
std::optional<std::int64_t> memory(const CLI::App& command) {
  if (!given(command, "--memory")) return std::nullopt;
  const std::int64_t bytes = parse_bytes(command.get_option("--memory")->as<std::string>());
  return bytes == 0 ? kNoLimit : bytes;
}

bool silent(const CLI::App& command) {
  return given(command, "--json") || (given(command, "--output") && command.get_option("--output")->as<std::string>() == "-");
}

void run_dnn_partitioning(const CLI::App& command, const std::string& text, const std::string& file) {
  allow(command, "dnn-partitioning", std::array<std::string_view, 2>{"devices", "memory"});
  DnnPartitioningOptions options;
  const auto counts = values(command, "--devices");
  if (counts.size() > 2) throw UsageError("--devices: more than two numbers", "accelerators, then CPUs: --devices 6,1");
  if (!counts.empty()) options.accelerators = parse_count(counts[0], "--devices");
  if (counts.size() == 2) options.cpus = parse_count(counts[1], "--devices");
  if (const auto bytes = memory(command)) options.memory_bytes = *bytes;
  const Plan plan = plan_dnn_partitioning(text, file, options);
  write(command, plan_to_json(plan));
  if (silent(command)) return;
  print_stages(plan);
  fmt::print("\nlargest load {:.6f} ms{}; {} states in {:.2f} s\n", plan.predicted.period_ms,
             plan.predicted.certified ? ", proved to be the smallest of contiguous splits" : "", plan.search.states, plan.search.seconds);
}

void print_piper(const PiperPlan& plan) {
  fmt::print("{:>5} {:<42} {:>6} {:>8} {:>7} {:>9} {:>10} {:>14} {:>10}\n", "stage", "layers", "degree", "replicas", "devices", "in flight",
             "recompute", "time", "memory");
  int devices = 0;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const PiperStage& stage = plan.stages[s];
    const auto recomputed = std::count_if(stage.variants.begin(), stage.variants.end(), [](const std::string& name) { return name != "vanilla"; });
    devices += stage.devices();
    fmt::print("{:>5} {:<42} {:>6} {:>8} {:>7} {:>9} {:>10} {:>14.9g} {:>10}{}\n", s, layers_text(stage.layers), stage.tensor_degree, stage.replicas,
               stage.devices(), stage.in_flight, recomputed == 0 ? "-" : fmt::format("{} of {}", recomputed, stage.layers.size()), stage.time,
               format_bytes(stage.memory_bytes), stage.time == plan.time ? "  slowest" : "");
  }
  fmt::print("\ntime per sample {:.9g}, in the unit of the file's times; {}\n", plan.time,
             plan.certified ? "proved to be the smallest of contiguous splits" : fmt::format("no split takes less than {:.9g}", plan.bound));
  fmt::print("{} of {} devices in use; {} states in {:.2f} s\n", devices, plan.devices, plan.search.states, plan.search.seconds);
}

// The same question with something changed, solved again.
void explain_piper(const PiperGraph& graph, const PiperOptions& options, const PiperPlan& plan) {
  const auto what_if = [&](const char* name, const auto& change) {
    PiperGraph other = with_options(graph, options);
    change(other);
    PiperOptions kept;
    kept.recompute = options.recompute;
    kept.straight = options.straight;
    const PiperPlan better = plan_piper(other, kept);
    const double gain = better.time > 0 ? plan.time / better.time : 1;
    fmt::print("  {:<22} {}\n", name,
               gain > 1.0005 ? fmt::format("{:.9g} ({:.{}f} % faster)", better.time, 100 * (gain - 1), gain < 1.1 ? 1 : 0) : "no gain");
  };
  fmt::print("what would help:\n");
  if (plan.devices < kManyDevices) {
    what_if("one more device", [](PiperGraph& g) { ++g.devices; });
    what_if("twice the devices", [](PiperGraph& g) { g.devices *= 2; });
  }
  what_if("1 GiB more per device", [](PiperGraph& g) { g.memory_bytes += 1073741824.0; });
  what_if("twice the bandwidth", [](PiperGraph& g) { g.bandwidth *= 2; });
  what_if("unlimited memory", [](PiperGraph& g) { g.memory_bytes = static_cast<double>(kNoLimit); });
}

void run_piper(const CLI::App& command, const std::string& text, const std::string& file, const PlanOptions& plan_options) {
  allow(command, "piper", std::array<std::string_view, 7>{"devices", "memory", "bandwidth", "micro-batches", "recompute", "straight", "explain"});
  PiperOptions options;
  options.recompute = plan_options.recompute;
  options.straight = plan_options.straight;
  const auto counts = values(command, "--devices"), bandwidths = values(command, "--bandwidth");
  if (counts.size() > 1 || bandwidths.size() > 1)
    throw UsageError("the cost model piper knows one level of devices and one bandwidth", "write --devices 16 --bandwidth 25GiB/s");
  if (!counts.empty()) {
    options.devices = parse_count(counts[0], "--devices");
    if (options.devices < 1) throw UsageError(fmt::format("--devices: {} devices, at least 1 is needed", options.devices));
  }
  if (!bandwidths.empty()) options.bandwidth = parse_bandwidth(bandwidths[0]);
  if (const auto bytes = memory(command)) options.memory_bytes = static_cast<double>(*bytes);
  if (given(command, "--micro-batches")) {
    options.micro_batches = plan_options.micro_batches;
    if (options.micro_batches < 1) throw UsageError(fmt::format("--micro-batches: {}, at least 1 is needed", options.micro_batches));
  }
  const PiperGraph graph = read_piper(text, file);
  const PiperPlan plan = plan_piper(graph, options);
  write(command, piper_plan_to_json(plan));
  if (silent(command)) return;
  print_piper(plan);
  if (given(command, "--explain")) explain_piper(graph, options, plan);
}

}  // namespace

bool plan_foreign_graph(const CLI::App& command, const std::string& text, const std::string& file, const PlanOptions& options) {
  const bool dnn_partitioning = looks_like_dnn_partitioning(text), piper = looks_like_piper(text);
  if (!dnn_partitioning && !piper) return false;
  const std::string own = piper ? "piper" : "dnn-partitioning";
  if (given(command, "--cost-model") && options.cost_model != own)
    throw UsageError(fmt::format("{} is a graph of the project {}, which has no costs for the cost model '{}'", file, own, options.cost_model),
                     fmt::format("leave out --cost-model, or convert it first: pipedream convert {} profile.json", file));
  if (piper) run_piper(command, text, file, options);
  else run_dnn_partitioning(command, text, file);
  return true;
}

}  // namespace pipedream::cli
