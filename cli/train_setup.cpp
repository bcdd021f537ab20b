#include "cli/train_setup.hpp"

#include "cli/model_data.hpp"
#include "cli/weights.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/data/loader.hpp"
#include "pipedream/model/import/import_model.hpp"
#include "pipedream/model/precision.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/plan/planner.hpp"
#include "pipedream/profiler/profiler.hpp"
#include "pipedream/runtime/loader_source.hpp"
#include "pipedream/runtime/pass_plan.hpp"
#include "pipedream/runtime/stage_graph.hpp"
#include "pipedream/runtime/trainer.hpp"
#include "pipedream/sim/plan_for_schedule.hpp"

namespace pipedream::cli {
namespace {

/// Memory bandwidth that a sum of gradients between threads gets: far above what matters for a pipeline, low enough that
/// summing gradients is not free.
constexpr double kInProcessBandwidth = 4e9;

bool is_tty() { return ::isatty(STDERR_FILENO) == 1 && verbosity() != Verbosity::Quiet; }

Profile measure_profile(const TrainSetup& setup, const Model& model, const DataSet& data, int ranks, int threads) {
  LoaderOptions loader_options;
  loader_options.micro_batch = setup.micro_batch;
  loader_options.seed = setup.seed;
  loader_options.prefetch = 0;
  Loader loader(std::shared_ptr<const DataSet>(&data, [](const DataSet*) {}), loader_options);
  const MicroBatch batch = loader.get(0, 0);
  ProfilerOptions options;
  options.iterations = setup.iterations;
  options.copies = ranks;
  options.threads = threads;
  options.seed = setup.seed;
  options.precision = parse_precision(setup.precision);
  options.optimizer = setup.optimizer.name;
  options.split = false;
  options.make_update = [&setup](const std::vector<at::Tensor>& parameters) { return make_update_step(setup.optimizer, parameters); };
  options.progress = [](int done, int total) {
    if (is_tty()) fmt::print(stderr, "\r\033[Kmeasuring the layers {:>3.0f} %", 100.0 * done / std::max(1, total));
  };
  log_info("measuring the layers of {} with {} cop{} side by side ...", model.name, ranks, ranks == 1 ? "y" : "ies");
  Measurement measurement = measure(model, batch.tensors, batch.samples, options);
  if (is_tty()) fmt::print(stderr, "\r\033[K");
  measurement.profile.micro_batch = setup.micro_batch;
  return measurement.profile;
}

Plan plan_run(const TrainSetup& setup, const Profile& profile, int ranks) {
  PlanOptions options;
  options.schedule = setup.schedule;
  options.policy = setup.policy;
  options.optimizer = setup.optimizer.name == "sgd" && setup.optimizer.momentum == 0 ? "sgd-plain" : setup.optimizer.name;
  options.reduce_overlap = 0;  // the runtime reduces between a backward and the step
  options.micro_batches = setup.micro_batches;
  options.extra_in_flight = setup.extra_in_flight;
  const std::int64_t memory = setup.memory.empty() ? 0 : parse_bytes(setup.memory);
  const Cluster cluster = setup.cluster_file.empty() ? make_cluster({ranks}, {kInProcessBandwidth}, {0.0}, memory) : load_cluster(setup.cluster_file);
  if (!setup.stages.empty()) options.shape = parse_shape(setup.stages);
  else if (setup.cluster_file.empty()) options.straight = setup.schedule != "data-parallel" && setup.schedule != "asp";
  return plan_for_schedule(profile, cluster, options);
}

}  // namespace

std::vector<int> parse_shape(const std::string& text) {
  std::vector<int> shape;
  std::string number;
  for (const char c : text + "-") {
    if (c >= '0' && c <= '9') {
      number += c;
      continue;
    }
    if (c != '-' || number.empty() || number.size() > 4 || std::stoi(number) < 1)
      throw UsageError(fmt::format("'{}' is no shape of stages", text), "write the replicas of each stage, as in 2-1-1");
    shape.push_back(std::stoi(number));
    number.clear();
  }
  return shape;
}

void add_setup_options(CLI::App& command, TrainSetup& setup) {
  const auto add = [&](const char* name, auto& value, const char* help) { return command.add_option(name, value, help)->group("Input"); };
  add("--model", setup.model, "model of the zoo with its options (pipedream list models), or a .pt2 file")->capture_default_str();
  add("--loss", setup.loss, "of a model file that has none: cross-entropy (default), nll, mse, l1, bce");
  add("--data", setup.data, "data set (pipedream list data); default: fashion-mnist, for a model file synthetic data of its form");
  add("--plan", setup.plan_file, "run this plan instead of making one");
  add("--profile", setup.profile_file, "plan from this profile instead of measuring one");
  add("--cluster", setup.cluster_file, "devices and links to plan for (TOML)");
  add("--ranks", setup.ranks, "devices: threads of this process")->check(CLI::Range(1, 512))->capture_default_str();
  add("--stages", setup.stages, "replicas per stage, cut by the planner: 1-1, 2-1-1");
  add("--schedule", setup.schedule, "pipedream list schedules")->capture_default_str();
  add("--policy", setup.policy, "of weight versions (pipedream list policies); default: the schedule's own");
  add("--micro-batch", setup.micro_batch, "samples per micro-batch")->check(CLI::Range(1, 1 << 20))->capture_default_str();
  add("--micro-batches", setup.micro_batches, "per optimizer step; default 1, with schedules that flush 4 per rank")->check(CLI::Range(1, 1 << 20));
  add("--weights", setup.weights, "safetensors file to start from");
  add("--precision", setup.precision, "of the layers: float32 or bfloat16 (weights and optimizer stay in float32)")->capture_default_str();
  add("--memory", setup.memory, "of each device, as 4GiB; default: not limited");
  add("--threads", setup.threads, "for the operators of each rank; default: cores / ranks")->check(CLI::Range(0, 1024));
  add("--profile-iterations", setup.iterations, "of the profiler")->check(CLI::Range(1, 10000))->capture_default_str();
}

Prepared prepare(const TrainSetup& given) {
  TrainSetup setup = given;
  setup.model = with_loss(setup.model, setup.loss);
  if (parse_precision(setup.precision) == Precision::BFloat16 && !cores_have_bfloat16())
    log_warning("these cores have no instructions for bfloat16: float32 is faster here");
  ModelAndData loaded = load_model_and_data(setup.model, setup.data.empty() && !is_model_file(setup.model) ? "fashion-mnist" : setup.data);
  const auto train = loaded.train, test = loaded.test;
  Prepared prepared;
  prepared.model = std::move(loaded.model);
  if (!setup.weights.empty()) start_from_weights(prepared.model, setup.weights);
  prepared.data = loaded.data_spec;
  prepared.num_samples = train->size();
  prepared.num_parameters = count_elements(distinct_parameters(prepared.model, create_layers(prepared.model, setup.seed)));
  std::optional<Plan> plan = setup.given_plan;
  if (!plan && !setup.plan_file.empty()) plan = load_plan(setup.plan_file);
  int ranks = setup.ranks;
  if (plan) ranks = plan->num_ranks();
  else if (!setup.stages.empty()) {
    ranks = 0;
    for (const int replicas : parse_shape(setup.stages)) ranks += replicas;
  } else if (!setup.cluster_file.empty()) {
    ranks = load_cluster(setup.cluster_file).num_devices();
  }
  if (plan && plan->micro_batch > 0) setup.micro_batch = plan->micro_batch;
  if (setup.micro_batches == 0) setup.micro_batches = setup.schedule == "1f1b-async" || setup.schedule == "asp" ? 1 : 4 * ranks;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  prepared.threads_per_rank = setup.threads > 0 ? setup.threads : std::max(1, cores / ranks);
  if (setup.given_profile) prepared.profile = *setup.given_profile;
  else if (!setup.profile_file.empty()) prepared.profile = load_profile(setup.profile_file);
  else if (!plan || plan->predicted.period_ms <= 0)
    prepared.profile = measure_profile(setup, prepared.model, *train, ranks, prepared.threads_per_rank);
  if (!plan) plan = plan_run(setup, prepared.profile, ranks);
  prepared.plan = std::move(*plan);
  prepared.plan.micro_batch = setup.micro_batch;
  prepared.sources = loader_sources(train, test, setup.micro_batch, setup.seed);
  std::vector<std::vector<std::string>> stages;
  for (const auto& stage : prepared.plan.stages) stages.push_back(stage.layers);
  const auto first = prepared.sources({});
  prepared.schedule =
      schedule_of(prepared.plan, cut_model(prepared.model, stages), first->num_micro_batches(), setup.extra_in_flight, setup.overlap_reductions);
  return prepared;
}

void warn_about_blas() {
  // OpenBLAS says how it was built; its threads build (1) makes ranks that are threads of one process wait for each other.
  using Parallel = int (*)();
  const auto parallel = reinterpret_cast<Parallel>(::dlsym(RTLD_DEFAULT, "openblas_get_parallel"));
  if (parallel != nullptr && parallel() == 1)
    log_warning(
        "this OpenBLAS is built with its own threads, so ranks of one process slow each other down 2 to 3 times in matrix products; "
        "install libopenblas0-openmp");
}

}  // namespace pipedream::cli
