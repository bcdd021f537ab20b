#include "cli/train_processes.hpp"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/comm/hybrid.hpp"
#include "pipedream/comm/in_process.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/runtime/verify.hpp"

namespace pipedream::cli {
namespace {

constexpr std::int64_t kVerifySteps = 8;
/// Rounding in other orders of summation, over a few steps.
constexpr double kVerifyTolerance = 1e-3;

/// What the other processes hear of the work of this one's ranks.
class ControlBoard final : public RankBoard {
 public:
  explicit ControlBoard(const std::vector<std::shared_ptr<ControlGroup>>& groups) : RankBoard(groups[0]->world_size()) {
    for (const auto& group : groups) groups_[group->rank()] = group;
  }
  void set(int rank, std::string doing) override { groups_.at(rank)->set_doing(std::move(doing)); }

 private:
  std::map<int, std::shared_ptr<ControlGroup>> groups_;
};

/// Progress where the loss is; the lines of metrics.jsonl on rank 0, after each pass.
class ProcessObserver final : public TrainObserver {
 public:
  ProcessObserver(ProgressDisplay& display, ProgressDisplay* metrics) : display_(display), metrics_(metrics) {}
  void on_micro_batch(const Progress& progress) override { display_.on_micro_batch(progress); }
  void on_evaluation(int epoch, int micro_batch, int num_micro_batches) override { display_.on_evaluation(epoch, micro_batch, num_micro_batches); }
  void on_gathered(const Progress& progress, double time_ms) override {
    if (metrics_ == nullptr) return;
    metrics_->set_time(time_ms / 1e3);
    metrics_->on_micro_batch(progress);
  }
  void on_epoch(const EpochResult& result) override {
    if (metrics_ != nullptr) metrics_->on_epoch(result);
    display_.on_epoch(result);
  }
  void on_evaluated(const EvaluationPoint& point) override { display_.on_evaluated(point); }
  bool stop() override { return display_.stop(); }

 private:
  ProgressDisplay& display_;
  ProgressDisplay* metrics_;
};

/// Enough of the data to tell other data from it: how much there is, and the bytes of the first micro-batch.
std::string describe_data(const Prepared& prepared) {
  SourceRequest request;
  request.wanted.assign(prepared.model.inputs.size(), true);
  const auto source = prepared.sources(request);
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  if (source->num_micro_batches() > 0)
    for (const auto& tensor : source->get(0, true).inputs) {
      const at::Tensor flat = tensor.contiguous();
      const auto* bytes = static_cast<const unsigned char*>(flat.data_ptr());
      for (std::size_t i = 0; i < flat.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
    }
  return fmt::format("{} samples, first ones {:016x}", prepared.num_samples, hash);
}

}  // namespace

int count_ranks(const TrainSetup& setup) {
  if (!setup.plan_file.empty()) return load_plan(setup.plan_file).num_ranks();
  if (!setup.stages.empty()) {
    const auto shape = parse_shape(setup.stages);
    return std::accumulate(shape.begin(), shape.end(), 0);
  }
  if (!setup.cluster_file.empty()) return load_cluster(setup.cluster_file).num_devices();
  return setup.ranks;
}

Prepared prepare_shared(TrainSetup setup, const std::string& settings, ProcessRun& process) {
  ControlGroup& group = *process.group();
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (setup.threads <= 0) setup.threads = std::max(1, cores / process.ranks_on_host());
  if (process.has_rank_0() && count_ranks(setup) != group.world_size())
    throw RankError(fmt::format("the run has {} ranks and {} {} started for it", count_ranks(setup), group.world_size(),
                                process.environment().world_size == group.world_size() ? "processes were" : "in all processes were"),
                    "start as many processes as the plan, --stages or --ranks says, or give --ranks-per-process");
  group.agree("settings", settings);
  Prepared prepared;
  if (process.has_rank_0()) {
    group.set_doing("measuring and planning");
    prepared = prepare(setup);
    group.set("profile", prepared.profile.layers.empty() ? "" : profile_to_json(prepared.profile));  // a plan may come without
    group.set("plan", plan_to_json(prepared.plan));
  } else {
    setup.given_plan = plan_from_json(group.get("plan", "rank 0 to measure and plan", true), "the plan of rank 0");
    const std::string profile = group.get("profile", "the profile of rank 0");
    setup.given_profile = profile.empty() ? Profile{} : profile_from_json(profile, "the profile of rank 0");
    prepared = prepare(setup);
  }
  return prepared;
}

void start_together(ProcessRun& process, const std::string& what) {
  if (process.has_rank_0()) process.group()->set("done/" + what, "done");
  else (void)process.group()->get("done/" + what, "rank 0 " + what, true);
}

void verify_first_steps(ProcessRun* process, const Prepared& prepared, TrainOptions options) {
  options.steps = kVerifySteps;
  options.evaluate = false;
  options.until_accuracy = options.until_ms = 0;
  options.collect_weights = options.collect_gradients = true;
  TrainObserver silent;
  TrainResult run;
  if (process != nullptr) {
    run = train_ranks(prepared.model, prepared.plan, options, prepared.sources, silent, make_hybrid_transports(process->groups(), "gloo"), nullptr);
  } else {
    run = train(prepared.model, prepared.plan, options, prepared.sources, silent);
  }
  if (process == nullptr || process->has_rank_0()) {
    if (process != nullptr) process->group()->set_doing("running the first steps again on one rank");
    const VerifyReport report = compare_with_rework(run, rework_on_one_rank(prepared.model, prepared.plan, options, prepared.sources));
    log_info(
        "verified {} steps ({} micro-batches) against one rank; largest differences: of a loss {:.2g} (micro-batch {}), of a gradient {}, of a "
        "weight {}",
        run.steps, report.micro_batches, report.loss_difference, report.loss_at,
        report.gradient_at.empty()
            ? "none"
            : fmt::format("{:.2g} of its tensor's largest ({}, step {})", report.gradient_difference, report.gradient_at, report.gradient_step),
        report.weight_at.empty() ? "none" : fmt::format("{:.2g} of its tensor's largest ({})", report.weight_difference, report.weight_at));
    if (!(report.weight_difference <= kVerifyTolerance))
      throw RankError(
          fmt::format("the run differs from one rank: weight {} by {:.3g} of its largest value after {} steps; gradients by up to {:.3g} "
                      "({}, step {})",
                      report.weight_at, report.weight_difference, run.steps, report.gradient_difference, report.gradient_at, report.gradient_step),
          "a layer may depend on something else than its inputs, its weights and its sample keys");
  }
  if (process != nullptr) start_together(*process, "to run the first steps again");
}

TrainResult train_process(ProcessRun& process, const Prepared& prepared, const TrainOptions& options, RunFolder* folder) {
  process.group()->set_doing("reading its data");
  process.group()->agree("data", describe_data(prepared));
  const auto& last = prepared.plan.stages.back().ranks;
  const bool shows_loss = process.has_rank(*std::min_element(last.begin(), last.end()));
  const int epochs = options.steps > 0 ? 0 : options.epochs;
  ProgressDisplay display(nullptr, epochs, process.is_quiet() || !(shows_loss || process.has_rank_0())), metrics(folder, epochs, true);
  ProcessObserver observer(display, folder != nullptr ? &metrics : nullptr);
  ControlBoard board(process.groups());
  return train_ranks(prepared.model, prepared.plan, options, prepared.sources, observer, make_hybrid_transports(process.groups(), "gloo"), &board);
}

}  // namespace pipedream::cli
