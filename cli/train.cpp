#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "cli/commands.hpp"
#include "cli/model_data.hpp"
#include "cli/quoted.hpp"
#include "cli/run_folder.hpp"
#include "cli/train_output.hpp"
#include "cli/train_processes.hpp"
#include "cli/train_setup.hpp"
#include "cli/weights.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/model/precision.hpp"
#include "pipedream/model/run.hpp"
#include "pipedream/report/table.hpp"
#include "pipedream/runtime/loader_source.hpp"
#include "pipedream/runtime/memory_meter.hpp"
#include "pipedream/runtime/stage_graph.hpp"

namespace pipedream::cli {
namespace {

struct TrainFlags {
  TrainSetup setup;
  ProcessFlags process;
  TrainOptions options;
  std::string learning_rate_schedule = "constant", deadline = "30s", until_time, run, trace, save_weights;
  bool no_evaluation = false, no_baseline = false, json = false, verify = false;
};

std::string optimizer_text(const OptimizerOptions& o) {
  std::string text = fmt::format("{}, learning rate {}", o.name, o.learning_rate);
  if (o.momentum > 0) text += fmt::format(", {}momentum {}", o.nesterov ? "Nesterov " : "", o.momentum);
  if (o.weight_decay > 0) text += fmt::format(", weight decay {}", o.weight_decay);
  return text;
}

/// The settings of a run as a file that --config reads back.
std::string settings_toml(const TrainFlags& flags) {
  const auto& o = flags.options;
  const auto& s = flags.setup;
  std::string text = "[train]\n";
  const auto add = [&](const char* key, const std::string& value) { text += fmt::format("{} = {}\n", key, value); };
  add("model", quoted(s.model));
  if (!s.loss.empty()) add("loss", quoted(s.loss));
  if (!s.data.empty()) add("data", quoted(s.data));
  if (!s.plan_file.empty()) add("plan", quoted(s.plan_file));
  else if (!s.stages.empty()) add("stages", quoted(s.stages));
  else add("ranks", std::to_string(s.ranks));
  add("schedule", quoted(s.schedule));
  if (!s.policy.empty()) add("policy", quoted(s.policy));
  add("micro-batch", std::to_string(s.micro_batch));
  if (s.micro_batches > 0) add("micro-batches", std::to_string(s.micro_batches));
  if (o.evaluate_every > 0) add("evaluate-every", std::to_string(o.evaluate_every));
  if (o.until_accuracy > 0) add("until-accuracy", fmt::format("{}", o.until_accuracy));
  if (!flags.until_time.empty()) add("until-time", quoted(flags.until_time));
  if (o.steps > 0) add("steps", std::to_string(o.steps));
  else add("epochs", std::to_string(o.epochs));
  if (s.precision != "float32") add("precision", quoted(s.precision));
  add("optimizer", quoted(o.optimizer.name));
  add("lr", fmt::format("{}", o.optimizer.learning_rate));
  add("momentum", fmt::format("{}", o.optimizer.momentum));
  if (o.optimizer.nesterov) add("nesterov", "true");
  add("weight-decay", fmt::format("{}", o.optimizer.weight_decay));
  add("lr-schedule", quoted(flags.learning_rate_schedule));
  add("clip-norm", fmt::format("{}", o.clip_norm));
  add("extra-in-flight", std::to_string(o.extra_in_flight));
  if (o.overlap_reductions) add("overlap-reductions", "true");
  add("threads", std::to_string(o.threads_per_rank));
  add("seed", std::to_string(o.seed));
  add("deadline", quoted(flags.deadline));
  return text;
}

std::string plan_table(const Plan& plan) {
  Table table({"stage", "ranks", "layers", "from", "to", "forward", "backward", "update", "versions", "memory"});
  for (const auto& stage : plan.stages)
    table.add_row({stage.name, fmt::format("{}", fmt::join(stage.ranks, ",")), std::to_string(stage.layers.size()), stage.layers.front(),
                   stage.layers.back(), format_ms(stage.predicted.forward_ms), format_ms(stage.predicted.backward_ms),
                   format_ms(stage.predicted.update_ms), std::to_string(stage.predicted.versions),
                   format_bytes(static_cast<double>(stage.predicted.memory_bytes))});
  std::string text = table.text();
  text +=
      fmt::format("predicted period {} per micro-batch, lower bound {}\n", format_ms(plan.predicted.period_ms), format_ms(plan.predicted.bound_ms));
  if (plan.predicted.exposed_ms > 0.01 * plan.predicted.period_ms)
    text +=
        fmt::format("with the transfers that 1F1B exposes {}; --extra-in-flight {} hides them, for as many more weight versions at the first stage\n",
                    format_ms(plan.predicted.expected_ms()), plan.num_stages() - 1);
  if (!plan.alternatives.empty()) {
    Table others({"alternative", "shape", "period", ""});
    for (const auto& other : plan.alternatives)
      others.add_row({other.name, other.shape, other.feasible ? format_ms(other.period_ms) : "-", other.feasible ? "" : other.reason});
    text += others.text();
  }
  return text;
}

/// Time per micro-batch on one device, measured with the same data, model and optimizer: a few steps of the plan with one stage.
Baseline measure_one_device(const Prepared& prepared, const TrainFlags& flags, int threads, const std::string& name) {
  Plan single;
  single.model = prepared.plan.model;
  single.schedule = "model-parallel";
  single.policy = "flush";
  single.micro_batches = prepared.plan.schedule == "1f1b-async" ? 1 : prepared.plan.micro_batches;
  StagePlan stage;
  stage.name = "0";
  for (const auto& node : prepared.model.nodes) stage.layers.push_back(node.name);
  stage.ranks = {0};
  single.stages = {stage};
  TrainOptions options = flags.options;
  options.threads_per_rank = threads;
  options.evaluate = false;
  options.until_accuracy = options.until_ms = 0;
  options.clip_norm = 0;
  double once_ms = 0;
  for (const auto& layer : prepared.profile.layers) once_ms += layer.forward_ms + layer.backward_ms + layer.update_ms;
  // About four seconds, at least a handful of micro-batches.
  options.steps = std::clamp<std::int64_t>(static_cast<std::int64_t>(4000 / std::max(once_ms, 0.01) / single.micro_batches), 4, 200);
  TrainObserver silent;
  const TrainResult result = train(prepared.model, single, options, prepared.sources, silent);
  return {name, result.period_ms};
}

/// "processes", "threads of 2 processes".
std::string where_ranks_are(const ProcessRun* process) {
  if (process == nullptr) return "threads of one process";
  const int processes = process->environment().world_size;
  return processes == process->group()->world_size() ? "processes" : fmt::format("threads of {} process{}", processes, processes == 1 ? "" : "es");
}

void run_rank_or_all(TrainFlags& flags, ProcessRun* process);

void run_train(TrainFlags& flags) {
  if (is_launcher(flags.process)) return launch_local_ranks(flags.process, count_ranks(flags.setup));
  const auto process = ProcessRun::join(flags.process, std::chrono::milliseconds(static_cast<std::int64_t>(parse_duration_ms(flags.deadline))));
  if (process) process->guard([&] { run_rank_or_all(flags, process.get()); });
  else run_rank_or_all(flags, nullptr);
}

/// @param process  this rank's, null where ranks are threads
void run_rank_or_all(TrainFlags& flags, ProcessRun* process) {
  const bool is_first = process == nullptr || process->has_rank_0();
  prepare_process();
  warn_about_blas();
  flags.options.learning_rate_schedule = parse_learning_rate_schedule(flags.learning_rate_schedule);
  flags.options.deadline_ms = parse_duration_ms(flags.deadline);
  flags.options.evaluate = !flags.no_evaluation;
  if (!flags.until_time.empty()) flags.options.until_ms = parse_duration_ms(flags.until_time);
  if (flags.no_evaluation && (flags.options.evaluate_every > 0 || flags.options.until_accuracy > 0 || flags.options.until_ms > 0))
    throw UsageError("--evaluate-every, --until-accuracy and --until-time need evaluations", "leave out --no-evaluation");
  validate(flags.options.optimizer);
  if (flags.options.epochs < 1) throw UsageError("--epochs must be at least 1");
  flags.setup.optimizer = flags.options.optimizer;
  flags.options.precision = parse_precision(flags.setup.precision);
  flags.setup.seed = flags.options.seed;
  flags.setup.extra_in_flight = flags.options.extra_in_flight;
  flags.setup.overlap_reductions = flags.options.overlap_reductions;
  std::unique_ptr<RunFolder> folder;
  if (!flags.run.empty() && is_first) {
    folder = std::make_unique<RunFolder>(flags.run);
    folder->write_settings(settings_toml(flags));
  }
  Prepared prepared =
      process
          ? prepare_shared(flags.setup, settings_toml(flags) + (flags.run.empty() && flags.save_weights.empty() ? "" : "keeps weights\n"), *process)
          : prepare(flags.setup);
  const Plan& plan = prepared.plan;
  if (flags.options.clip_norm > 0 && plan.policy != "flush")
    throw UsageError("--clip-norm needs a schedule that flushes: without a flush no stage knows the others' gradients",
                     "choose --schedule 1f1b or gpipe");
  log_info("{}", render_settings({{"model", fmt::format("{} ({} parameters, {} layers)", prepared.model.name, format_count(prepared.num_parameters),
                                                        prepared.model.nodes.size())},
                                  {"data", fmt::format("{} ({} samples, {} per micro-batch)", prepared.data, format_count(prepared.num_samples),
                                                       flags.setup.micro_batch)},
                                  {"schedule", fmt::format("{}, policy {}, {} micro-batch{} per step", plan.schedule, plan.policy, plan.micro_batches,
                                                           plan.micro_batches == 1 ? "" : "es")},
                                  {"ranks", fmt::format("{} {}, {} core{} for each one's operators", plan.num_ranks(), where_ranks_are(process),
                                                        prepared.threads_per_rank, prepared.threads_per_rank == 1 ? "" : "s")},
                                  {"optimizer", fmt::format("{}, {}", optimizer_text(flags.options.optimizer), flags.learning_rate_schedule)},
                                  {"precision", flags.setup.precision},
                                  {"seed", std::to_string(flags.options.seed)},
                                  {"run directory", flags.run.empty() ? "none (--run DIR keeps the run)" : flags.run}}));
  log_info("{}", plan_table(plan));
  flags.options.threads_per_rank = prepared.threads_per_rank;
  std::vector<Baseline> baselines;
  if (!flags.no_baseline && is_first) {
    log_info("measuring one device for comparison ...");
    baselines.push_back(measure_one_device(prepared, flags, 1, "one device, one thread"));
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    if (cores > 1) baselines.push_back(measure_one_device(prepared, flags, cores, fmt::format("one process, {} threads in every operator", cores)));
  }
  if (folder) {
    folder->write_profile(prepared.profile);
    folder->write_plan(plan);
    folder->write_schedule(prepared.schedule);
  }
  stop_on_signals();
  flags.options.collect_weights = !flags.run.empty() || !flags.save_weights.empty();
  ProgressDisplay display(folder.get(), flags.options.steps > 0 ? 0 : flags.options.epochs, verbosity() == Verbosity::Quiet);
  if (process) start_together(*process, "to measure one device");
  if (flags.verify) verify_first_steps(process, prepared, flags.options);
  const TrainResult result = process ? train_process(*process, prepared, flags.options, folder.get())
                                     : train(prepared.model, plan, flags.options, prepared.sources, display);
  if (!is_first) return;
  const Metadata metadata{{"model", with_loss(flags.setup.model, flags.setup.loss)},
                          {"data", prepared.data},
                          {"micro_batch", std::to_string(plan.micro_batch)},
                          {"seed", std::to_string(flags.options.seed)}};
  if (folder) {
    folder->write_trace(result.trace);
    save_weights(prepared.model, result, folder->path() / "checkpoints" / "final.safetensors", metadata);
    folder->write_summary(summary_json(plan, result, baselines));
  }
  if (!flags.save_weights.empty()) save_weights(prepared.model, result, flags.save_weights, metadata);
  if (!flags.trace.empty()) write_file(flags.trace, trace_to_chrome_json(result.trace));
  if (flags.json) fmt::print("{}", summary_json(plan, result, baselines));
  else fmt::print("\n{}", render_result(plan, result, baselines));
}

}  // namespace

void add_train(CLI::App& app) {
  auto flags = std::make_shared<TrainFlags>();
  CLI::App* command = app.add_subcommand("train", "profile and plan if no plan is given, then run; measured beside predicted at the end");
  add_setup_options(*command, flags->setup);
  add_process_options(*command, flags->process);
  auto& o = flags->options;
  command->add_option("--epochs", o.epochs, "passes over the data")->capture_default_str()->group("Training");
  command->add_option("--steps", o.steps, "optimizer steps instead of whole epochs")->group("Training");
  command->add_option("--optimizer", o.optimizer.name, "sgd, adam or adamw")->capture_default_str()->group("Training");
  command->add_option("--lr", o.optimizer.learning_rate, "learning rate of the first stage")->capture_default_str()->group("Training");
  command->add_option("--momentum", o.optimizer.momentum, "of sgd")->capture_default_str()->group("Training");
  command->add_flag("--nesterov", o.optimizer.nesterov, "Nesterov's form of momentum")->group("Training");
  command->add_option("--weight-decay", o.optimizer.weight_decay, "")->capture_default_str()->group("Training");
  command->add_option("--lr-schedule", flags->learning_rate_schedule, "constant, step:every=N,factor=F, cosine:floor=F; with warmup=N")
      ->capture_default_str()
      ->group("Training");
  command->add_option("--clip-norm", o.clip_norm, "largest global gradient norm (schedules that flush)")->group("Training");
  command
      ->add_option("--extra-in-flight", o.extra_in_flight, "micro-batches beyond the fewest that fill the pipe: absorbs jitter for a weight version")
      ->check(CLI::Range(0, 64))
      ->group("Run");
  command->add_flag("--overlap-reductions", o.overlap_reductions, "1f1b-async: replicas step a forward later, beside which gradients are summed")
      ->group("Run");
  command->add_option("--run", flags->run, "run directory to write")->group("Run");
  command->add_option("--trace", flags->trace, "Chrome/Perfetto trace of the first pass")->group("Run");
  command->add_option("--save-weights", flags->save_weights, "safetensors file for the weights at the end")->group("Run");
  command->add_option("--deadline", flags->deadline, "of every wait of a rank")->capture_default_str()->group("Run");
  command->add_option("--seed", o.seed, "decides weights, masks and the order of data")->capture_default_str()->group("Run");
  command->add_option("--evaluate-every", o.evaluate_every, "steps between evaluations; default: after each epoch only")
      ->check(CLI::PositiveNumber)
      ->group("Run");
  command->add_option("--until-accuracy", o.until_accuracy, "end at the first evaluation that is as good, as 0.9")
      ->check(CLI::Range(0.0, 1.0))
      ->group("Run");
  command->add_option("--until-time", flags->until_time, "end at the first evaluation after so much time of training, as 60s")->group("Run");
  command->add_flag("--no-evaluation", flags->no_evaluation, "do not evaluate after each epoch")->group("Run");
  command->add_flag("--no-baseline", flags->no_baseline, "do not measure one device for comparison")->group("Run");
  command->add_flag("--verify", flags->verify, "first run 8 steps, run them again on one rank, and compare losses, gradients and weights")
      ->group("Run");
  command->add_flag("--json", flags->json, "print the summary as JSON")->group("Run");
  command->footer(
      "Examples:\n  pipedream train --model lenet --data fashion-mnist --ranks 2 --epochs 2 --run r\n"
      "  pipedream train --model vgg11 --data fashion-mnist --plan plan.json --lr 0.01 --momentum 0.9");
  command->callback([flags] { run_train(*flags); });
}

}  // namespace pipedream::cli
