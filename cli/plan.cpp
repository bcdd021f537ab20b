#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <sstream>

#include "cli/commands.hpp"
#include "cli/plan_foreign.hpp"
#include "cli/plan_output.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/planner.hpp"
#include "pipedream/sim/plan_for_schedule.hpp"

namespace pipedream::cli {
namespace {

struct Options {
  std::string profile, cluster_file, output, recompute = "auto", memory, compression = "none";
  std::vector<std::string> devices, bandwidths, latencies;
  bool json = false, explain = false;
  PlanOptions plan;
  const CLI::App* command = nullptr;
  ModelToMeasure model;
  MeasureModel measure;
};

Cluster cluster_of(const Options& options) {
  if (!options.cluster_file.empty()) {
    if (!options.devices.empty())
      throw UsageError("--cluster and --devices are both given", "a cluster file already says how many devices there are");
    Cluster cluster = load_cluster(options.cluster_file);
    if (!options.memory.empty())
      for (Device& device : cluster.devices) device.memory_bytes = parse_bytes(options.memory);
    return cluster;
  }
  if (options.devices.empty()) throw UsageError("no devices are given", "add --devices 4 --bandwidth 10Gbit/s, or --cluster FILE.toml");
  std::vector<int> counts;
  std::vector<double> bandwidths, latencies;
  for (const std::string& text : split_commas(options.devices)) counts.push_back(parse_count(text, "--devices"));
  for (const std::string& text : split_commas(options.bandwidths))
    bandwidths.push_back(text == "inf" ? std::numeric_limits<double>::infinity() : parse_bandwidth(text));
  for (const std::string& text : split_commas(options.latencies)) latencies.push_back(parse_duration_ms(text));
  if (bandwidths.empty()) throw UsageError("no bandwidth is given", "add --bandwidth 10Gbit/s; inf for devices of one process");
  return make_cluster(counts, bandwidths, latencies, options.memory.empty() ? 0 : parse_bytes(options.memory));
}

void finish(Options& options) {
  if (options.recompute == "never") options.plan.recompute = Recompute::Never;
  if (options.recompute == "always") options.plan.recompute = Recompute::Always;
  if (options.compression != "none") {
    char* end = nullptr;
    const double ratio = std::strtod(options.compression.c_str(), &end);
    if (*end != '\0' || !(ratio > 0) || !std::isfinite(ratio))
      throw UsageError(fmt::format("--activation-compression: '{}' is no ratio above 0", options.compression),
                       "give a number, or none for free transfers");
    options.plan.compression = ratio;
  }
}

// What to ask for to get an alternative.
std::string way_to(const Alternative& a, const Plan& plan, const PlanOptions& options) {
  if (options.straight && a.shape.find_first_not_of("1-") != std::string::npos) return "; leave out --straight";
  if (options.max_stages > 0 && std::count(a.shape.begin(), a.shape.end(), '-') >= options.max_stages) return "; raise --max-stages";
  if (options.planner != "exact") return "; --planner exact looks at it";
  if (!options.fewer_devices && plan.num_ranks() > 1 && (a.name == "single" || a.name == "straight"))
    return "; allow idle devices with --fewer-devices";
  return "";
}

void print_alternatives(const Plan& plan, const PlanOptions& options) {
  if (plan.alternatives.empty()) return;
  fmt::print("\n{:<16} {:>10} {:>11} {:>14}  {:<18} {}\n", "alternative", "period", "memory", "bytes on wire", "shape", "");
  for (const Alternative& a : plan.alternatives) {
    if (a.shape.empty()) {
      fmt::print("{:<16} {:>10} {:>11} {:>14}  {:<18} none: {}\n", a.name, "-", "-", "-", "", a.reason);
      continue;
    }
    std::string shape = a.shape.size() > 18 ? a.shape.substr(0, 15) + "..." : a.shape;
    fmt::print("{:<16} {:>10} {:>11} {:>14}  {:<18} {}{}\n", a.name, format_ms(a.period_ms), format_bytes(static_cast<double>(a.memory_bytes)),
               format_bytes(a.bytes_per_micro_batch), shape, a.feasible ? "" : "does not fit: ", a.reason);
  }
  for (const Alternative& a : plan.alternatives)
    if (a.feasible && a.period_ms < plan.predicted.period_ms * (1 - 5e-4))
      log_warning("'{}' ({}) would be faster than this plan: {} against {}{}", a.name, a.shape, format_ms(a.period_ms),
                  format_ms(plan.predicted.period_ms), way_to(a, plan, options));
}

void print_plan(const Plan& plan, const Cluster& cluster, const PlanOptions& options) {
  std::ostringstream devices;
  devices << cluster;
  fmt::print("{} on {}\n", plan.model.empty() ? "model" : plan.model, devices.str());
  fmt::print("schedule {}, policy {}, {} micro-batch{} per mini-batch, optimizer {}, cost model {}\n\n", plan.schedule, plan.policy,
             plan.micro_batches, plan.micro_batches == 1 ? "" : "es", plan.optimizer, plan.cost_model);
  print_stages(plan);
  fmt::print("times of one replica; load: {}\n", plan.policy == "flush"
                                                     ? "what the stage adds to the period once the pipeline is full, all its replicas together"
                                                     : "what the stage takes of the period, all its replicas together");
  const PlanPrediction& p = plan.predicted;
  fmt::print("\nshape {}, {} per micro-batch; {}\n", plan.shape(), format_ms(p.period_ms),
             p.certified      ? "proved to be the best"
             : p.bound_ms > 0 ? fmt::format("no plan is faster than {} (gap {:.2f} %)", format_ms(p.bound_ms), 100 * p.gap())
                              : "how far from the best is not known");
  if (p.exposed_ms > 0.01 * p.period_ms)
    fmt::print(
        "1F1B exposes transfers: {} expected per micro-batch; --extra-in-flight {} hides them, for as many more weight versions at the first stage\n",
        format_ms(p.expected_ms()), plan.num_stages() - 1);
  fmt::print("bytes on the wire per micro-batch: {} (data parallel: {})\n", format_bytes(p.bytes_per_micro_batch),
             format_bytes(p.data_parallel_bytes_per_micro_batch));
  print_alternatives(plan, options);
}

std::string read_profile(const Options& options) {
  try {
    return read_file(options.profile);
  } catch (const InputError&) {
    (void)cluster_of(options);  // a wrong option is said first
    throw;
  }
}

void plan_profile(const Options& options, const Cluster& cluster, const Profile& profile) {
  const Plan plan = plan_for_schedule(profile, cluster, options.plan);
  const std::string json = plan_to_json(plan);
  if (!options.output.empty()) write_file(options.output, json);
  if (options.json) fmt::print("{}", json);
  else if (options.output != "-") print_plan(plan, cluster, options.plan);
  if (options.explain && !options.json) fmt::print("\n{}", explain_plan(profile, cluster, options.plan, plan));
}

void run(Options& options) {
  finish(options);
  if (options.profile.empty() == options.model.model.empty())
    throw UsageError(
        options.profile.empty() ? "there is nothing to plan for" : "a profile and --model are both given",
        options.measure ? "pipedream plan PROFILE ..., or pipedream plan --model MODEL ... which measures one first" : "pipedream plan PROFILE ...");
  if (options.profile.empty()) {
    const Cluster devices = cluster_of(options);  // a wrong option is said before it is measured
    options.model.optimizer = options.plan.optimizer;
    return plan_profile(options, devices, options.measure(options.model));
  }
  const std::string text = read_profile(options), name = options.profile == "-" ? "standard input" : options.profile;
  if (plan_foreign_graph(*options.command, text, name, options.plan)) return;
  const Cluster cluster = cluster_of(options);
  plan_profile(options, cluster, profile_from_text(text, name));
}

}  // namespace

void add_plan(CLI::App& app, MeasureModel measure) {
  auto options = std::make_shared<Options>();
  CLI::App* sub = app.add_subcommand("plan", "choose cuts, replicas and placement for a profile on a cluster");
  options->command = sub;
  sub->add_option("PROFILE", options->profile, "profile JSON, graph.txt, a graph of dnn-partitioning or Piper; - is standard input");
  options->measure = std::move(measure);
  if (options->measure) {
    sub->add_option("--model", options->model.model, "measure this model first instead: of the zoo (pipedream list models), or a .pt2 file");
    sub->add_option("--data", options->model.data, "with --model; default: synthetic data of its form");
    sub->add_option("--loss", options->model.loss, "with --model: of a model file that has none");
    sub->add_option("--micro-batch", options->model.micro_batch, "with --model: samples per micro-batch")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
  }
  sub->add_option("--cluster", options->cluster_file, "cluster file (TOML)");
  sub->add_option("--devices", options->devices, "devices per level, lowest first: 4 or 4,4");
  sub->add_option("--bandwidth", options->bandwidths, "per level: 10Gbit/s, 12GB/s, 1e9 (bytes/s), inf");
  sub->add_option("--latency", options->latencies, "per level: 50us");
  sub->add_option("--memory", options->memory, "of each device: 16GiB; 0: not limited");
  sub->add_option("--schedule", options->plan.schedule, "1f1b-async, 1f1b, gpipe, model-parallel, data-parallel, auto")->capture_default_str();
  sub->add_option("--policy", options->plan.policy, "stash, flush, 2bw, vertical-sync, predict");
  sub->add_option("--micro-batches", options->plan.micro_batches, "per mini-batch; 0: the planner chooses")->capture_default_str();
  sub->add_option("--extra-in-flight", options->plan.extra_in_flight, "micro-batches in flight beyond the fewest");
  sub->add_option("--optimizer", options->plan.optimizer, "sgd, sgd-plain, adam, adamw, none")->capture_default_str();
  sub->add_option("--recompute", options->recompute, "auto, never, always")->check(CLI::IsMember({"auto", "never", "always"}))->capture_default_str();
  sub->add_option("--cost-model", options->plan.cost_model, "ring, paper, released; a graph of another project has its own")->capture_default_str();
  sub->add_option("--activation-compression", options->compression, "released, paper: ratio, or none for free transfers")->capture_default_str();
  sub->add_option("--planner", options->plan.planner, "see `pipedream list planners`")->capture_default_str();
  sub->add_option("--max-stages", options->plan.max_stages, "at most so many stages");
  sub->add_option("--transfer-overlap", options->plan.transfer_overlap, "share of transfers hidden behind compute, 0 to 1")->capture_default_str();
  sub->add_option("--reduce-overlap", options->plan.reduce_overlap, "share of reductions hidden behind compute, 0 to 1")->capture_default_str();
  sub->add_flag("--compress-branches", options->plan.compress_branches, "released, paper: merge chains of branches first");
  sub->add_flag("--straight", options->plan.straight, "no replication");
  sub->add_flag("--fewer-devices", options->plan.fewer_devices, "devices may stay idle");
  sub->add_flag("--explain", options->explain, "say why the plan is what it is");
  sub->add_flag("--json", options->json, "print the plan as JSON");
  sub->add_option("-o,--output", options->output, "write the plan to this file");
  sub->footer(
      "Examples:\n  pipedream plan vgg16.graph.txt --devices 4 --bandwidth 10Gbit/s\n  pipedream plan profile.json --cluster lab.toml --memory 16GiB "
      "--explain -o plan.json");
  sub->callback([options] { run(*options); });
}

}  // namespace pipedream::cli
