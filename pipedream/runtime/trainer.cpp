#include "pipedream/runtime/trainer.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "pipedream/comm/rank_threads.hpp"
#include "pipedream/core/bytes.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/runtime/figures.hpp"
#include "pipedream/runtime/memory_meter.hpp"
#include "pipedream/runtime/pass_plan.hpp"
#include "pipedream/runtime/rank_results.hpp"
#include "pipedream/runtime/stage.hpp"

namespace pipedream {
namespace {

std::vector<int> sorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// An epoch's data from some micro-batch on.
class RestOfEpoch final : public MicroBatchSource {
 public:
  RestOfEpoch(std::unique_ptr<MicroBatchSource> source, int first) : source_(std::move(source)), first_(first) {}
  [[nodiscard]] int num_micro_batches() const override { return source_->num_micro_batches() - first_; }
  [[nodiscard]] std::int64_t rows(int micro_batch) const override { return source_->rows(first_ + micro_batch); }
  [[nodiscard]] MicroBatchData get(int micro_batch, bool with_tensors) override { return source_->get(first_ + micro_batch, with_tensors); }

 private:
  std::unique_ptr<MicroBatchSource> source_;
  int first_;
};

/// One rank of a run.
class RankRun {
 public:
  RankRun(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources, TrainObserver& observer,
          Transport& transport, RankBoard* board)
      : model_(model), options_(options), sources_(sources), observer_(observer), transport_(transport), board_(board), memory_(meter_) {
    set_board("planning its passes");
    run_ = plan_run(model, plan, options, sources);
    set_board("making its layers");
    const Schedule& schedule = *run_.passes[0].schedule;
    if (schedule.num_ranks() != transport.num_ranks())
      throw UsageError(fmt::format("the plan has {} ranks, {} were started", schedule.num_ranks(), transport.num_ranks()));
    wanted_.assign(model.inputs.size(), false);
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
      const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
      if (std::find(ranks.begin(), ranks.end(), transport.rank()) == ranks.end()) continue;
      const StageOptions stage_options{options.seed,
                                       run_.slots[static_cast<std::size_t>(chunk)],
                                       plan.stages[static_cast<std::size_t>(chunk)].recompute,
                                       run_.split_backward,
                                       options.optimizer,
                                       options.precision};
      stages_[chunk] = std::make_unique<Stage>(model, run_.graph, chunk, stage_options);
      for (const int input : stages_[chunk]->layers().model_inputs) wanted_[static_cast<std::size_t>(input)] = true;
      if (!stages_[chunk]->layers().model_inputs.empty()) stride_ = std::gcd(stride_, static_cast<int>(ranks.size()));
      result_.stages.push_back(chunk);
      if (replicas_step_alone(schedule) && ranks.size() > 1)
        shards_ = std::make_unique<WeightShards>(transport, sorted(ranks), stages_[chunk]->newest_parameters(), options.optimizer,
                                                 1 + options.extra_in_flight, [this] { return std::make_shared<MemoryMeter::Scope>(meter_); });
    }
    stride_ = std::max(1, stride_);
    result_.rank = transport.rank();
  }

  TrainResult run() {
    std::map<int, Stage*> stages;
    for (auto& [chunk, stage] : stages_) stages[chunk] = stage.get();
    Executor executor(model_, run_.graph, transport_, stages, board_);
    for (std::size_t i = 0; i < run_.passes.size(); ++i) {
      try {
        run_pass(executor, run_.passes[i]);
      } catch (const std::exception& error) {
        if (shards_) shards_->abandon(error.what());
        throw;
      }
      if (!run_.passes[i].training) finish_evaluation(i);
      const bool epoch_ends = i + 1 == run_.passes.size() || run_.passes[i + 1].epoch != run_.passes[i].epoch;
      if (transport_.rank() == 0 && epoch_ends) finish_epoch(i);
    }
    return finish();
  }

 private:
  void set_board(const char* doing) {
    if (board_ != nullptr) board_->set(transport_.rank(), doing);
  }

  void run_pass(Executor& executor, const PassPlan& pass) {
    set_board("preparing its data");
    auto source = sources_({pass.epoch, pass.training, wanted_, stride_});
    if (pass.first_micro_batch > 0) source = std::make_unique<RestOfEpoch>(std::move(source), pass.first_micro_batch);
    const std::int64_t sent_before = transport_.bytes_sent();
    PassReport report = executor.run(*pass.schedule, *source, *pass.groups, options_of(pass));
    report.bytes_sent = transport_.bytes_sent() - sent_before;
    if (pass.training) {
      account(result_, report);
      result_.training_bytes_sent += report.bytes_sent;
    }
    const auto gathered = transport_.gather(to_bytes(report));
    std::vector<PassReport> all;
    for (const auto& bytes : gathered) all.push_back(pass_report_from_bytes(bytes));
    if (pass.training) tell_gathered(pass, all);
    reports_.push_back(std::move(all));
  }

  void tell_gathered(const PassPlan& pass, const std::vector<PassReport>& reports) {
    if (reports.empty()) return;
    std::vector<LossReport> losses;
    for (const auto& report : reports) losses.insert(losses.end(), report.losses.begin(), report.losses.end());
    std::sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.micro_batch < b.micro_batch; });
    const PassOptions options = options_of(pass);
    const double now_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    for (const auto& loss : losses)
      observer_.on_gathered(progress_of(pass, loss, options.learning_rate(loss.micro_batch)), now_ms - reports[0].wall_ms + loss.end_ms);
  }

  [[nodiscard]] TrainObserver::Progress progress_of(const PassPlan& pass, const LossReport& loss, double learning_rate) const {
    return {pass.epoch,
            pass.first_micro_batch + loss.micro_batch,
            pass.epoch_micro_batches,
            pass.first_update + pass.groups->step_of(run_.loss_chunk, loss.micro_batch),
            learning_rate,
            loss};
  }

  [[nodiscard]] std::vector<PassResult> results(std::size_t first, std::size_t end) const {
    std::vector<PassResult> all;
    for (std::size_t i = first; i < end; ++i) all.push_back({&run_.passes[i], &reports_[i]});
    return all;
  }

  void finish_epoch(std::size_t last) {
    std::size_t first = last;
    while (first > 0 && run_.passes[first - 1].epoch == run_.passes[last].epoch) --first;
    epochs_.push_back(epoch_result(results(first, last + 1)));
    observer_.on_epoch(epochs_.back());
  }

  /// Where the run is to end at an accuracy or after a time, rank 0 knows whether it does, and tells the others.
  void finish_evaluation(std::size_t pass) {
    double is_over = 0;
    if (transport_.rank() == 0) {
      const EvaluationPoint point = evaluation_point(run_, results(0, pass), reports_[pass]);
      const bool is_good = options_.until_accuracy > 0 && point.accuracy.value_or(0) >= options_.until_accuracy;
      is_over = is_good || (options_.until_ms > 0 && point.training_ms >= options_.until_ms) ? 1 : 0;
      if (options_.evaluate_every > 0) observer_.on_evaluated(point);
      evaluations_.push_back(point);
    }
    if (options_.until_accuracy <= 0 && options_.until_ms <= 0) return;
    std::vector<int> everybody(static_cast<std::size_t>(transport_.num_ranks()));
    std::iota(everybody.begin(), everybody.end(), 0);
    Tensors sum{at::full({1}, is_over, at::kDouble)};
    transport_.all_reduce(everybody, sum);
    if (sum[0].item<double>() > 0) run_.passes.resize(pass + 1);
  }

  /// Of the first replica; the others' are the same.
  void keep_gradients(const Action& action, const Tensors& gradients, double scale) {
    if (run_.passes[0].schedule->chunk_ranks[static_cast<std::size_t>(action.chunk)][0] != transport_.rank()) return;
    const VersionStore& versions = stages_.at(action.chunk)->versions();
    for (std::size_t i = 0; i < gradients.size(); ++i)
      gradients_.push_back({versions.parameter_names()[i], versions.newest(), gradients[i].defined() ? gradients[i].mul(scale) : at::Tensor()});
  }

  PassOptions options_of(const PassPlan& pass) {
    PassOptions options;
    options.training = pass.training;
    if (pass.training) options.shards = shards_.get();
    options.clip_norm = options_.clip_norm;
    if (options_.collect_gradients)
      options.on_step = [this](const Action& step, const Tensors& gradients, double scale) { keep_gradients(step, gradients, scale); };
    options.bounded_messages = pass.training ? 0 : pass.schedule->num_chunks() + 4;
    options.stop = [this] { return observer_.stop(); };
    const auto update_of = [this, &pass](int micro_batch) { return pass.first_update + pass.groups->step_of(run_.loss_chunk, micro_batch); };
    options.learning_rate = [this, update_of](int micro_batch) {
      return learning_rate_at(options_.learning_rate_schedule, options_.optimizer.learning_rate, update_of(micro_batch), run_.total_updates);
    };
    options.on_loss = [this, &pass, rate = options.learning_rate](const LossReport& loss) {
      if (!pass.training) return observer_.on_evaluation(pass.epoch, loss.micro_batch, pass.schedule->micro_batches);
      observer_.on_micro_batch(progress_of(pass, loss, rate(loss.micro_batch)));
    };
    return options;
  }

  TrainResult finish() {
    set_board("handing in its result");
    result_.peak_memory_bytes = meter_.peak_bytes();
    result_.bytes_sent = transport_.bytes_sent();
    ByteWriter writer;
    for (auto& [chunk, stage] : stages_) result_.versions = std::max(result_.versions, stage->versions().peak_versions());
    put_result(writer, result_);
    put_gradients(writer, gradients_);
    for (auto& [chunk, stage] : stages_)
      if (options_.collect_weights && run_.passes[0].schedule->chunk_ranks[static_cast<std::size_t>(chunk)][0] == transport_.rank())
        put_weights(writer, model_, *stage);
    writer.put(-2);
    TrainResult result;
    if (transport_.rank() != 0) {
      (void)transport_.gather(writer.take());
      result.ranks = {result_};
      return result;
    }
    NodeWeights weights, buffers;
    for (const auto& bytes : transport_.gather(writer.take())) {
      ByteReader reader(bytes);
      result.ranks.push_back(get_result(reader));
      get_gradients(reader, result.gradients);
      if (!options_.collect_weights) continue;
      for (const int chunk : result.ranks.back().stages)
        if (run_.passes[0].schedule->chunk_ranks[static_cast<std::size_t>(chunk)][0] == result.ranks.back().rank)
          get_weights(reader, weights, buffers);
    }
    result.weights = in_order_of_layers(std::move(weights));
    result.buffers = in_order_of_layers(std::move(buffers));
    measure(run_, reports_, result);
    result.epochs = epochs_;
    result.evaluations = evaluations_;
    result.trace.source = "measured";
    result.trace.title = fmt::format("{} {}", model_.name, run_.passes[0].schedule->name);
    result.trace.num_ranks = transport_.num_ranks();
    for (const auto& report : reports_[0]) {
      const auto n = static_cast<std::ptrdiff_t>(std::min(report.actions.size(), options_.trace_actions));
      result.trace.actions.insert(result.trace.actions.end(), report.actions.begin(), report.actions.begin() + n);
    }
    return result;
  }

  const Model& model_;
  const TrainOptions& options_;
  const SourceFactory& sources_;
  TrainObserver& observer_;
  Transport& transport_;
  RankBoard* board_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  MemoryMeter meter_;
  MemoryMeter::Scope memory_;
  RunPlan run_;
  std::map<int, std::unique_ptr<Stage>> stages_;
  std::unique_ptr<WeightShards> shards_;
  std::vector<bool> wanted_;
  int stride_ = 0;
  RankResult result_;
  std::vector<StepGradient> gradients_;
  std::vector<std::vector<PassReport>> reports_;  // per pass and rank; filled on rank 0 only
  std::vector<EpochResult> epochs_;
  std::vector<EvaluationPoint> evaluations_;
};

/// Lets one thread at a time talk to an observer.
class LockedObserver final : public TrainObserver {
 public:
  explicit LockedObserver(TrainObserver& observer) : observer_(observer) {}
  void on_micro_batch(const Progress& progress) override {
    const std::lock_guard lock(mutex_);
    observer_.on_micro_batch(progress);
  }
  void on_evaluation(int epoch, int micro_batch, int num_micro_batches) override {
    const std::lock_guard lock(mutex_);
    observer_.on_evaluation(epoch, micro_batch, num_micro_batches);
  }
  void on_epoch(const EpochResult& result) override {
    const std::lock_guard lock(mutex_);
    observer_.on_epoch(result);
  }
  void on_evaluated(const EvaluationPoint& point) override {
    const std::lock_guard lock(mutex_);
    observer_.on_evaluated(point);
  }
  void on_gathered(const Progress& progress, double time_ms) override {
    const std::lock_guard lock(mutex_);
    observer_.on_gathered(progress, time_ms);
  }
  bool stop() override { return observer_.stop(); }

 private:
  std::mutex mutex_;  // guards the observer
  TrainObserver& observer_;
};

}  // namespace

TrainResult train_ranks(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources, TrainObserver& observer,
                        const std::vector<TransportFactory>& transports, RankBoard* board) {
  validate(options.optimizer);
  LockedObserver locked(observer);
  const std::int64_t resident_before = resident_bytes();
  TrainResult result;
  run_rank_threads(transports, board, [&](std::size_t place, Transport& transport) {
    if (options.threads_per_rank > 0) at::set_num_threads(options.threads_per_rank);
    TrainResult own = RankRun(model, plan, options, sources, locked, transport, board).run();
    if (place == 0) result = std::move(own);
  });
  result.resident_growth_bytes = std::max<std::int64_t>(0, resident_bytes() - resident_before);
  return result;
}

TrainResult train(const Model& model, const Plan& plan, const TrainOptions& given, const SourceFactory& sources, TrainObserver& observer) {
  validate(plan, "plan");
  const int num_ranks = plan.num_ranks();
  TrainOptions options = given;
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (options.threads_per_rank <= 0) options.threads_per_rank = std::max(1, cores / num_ranks);
  const auto board = std::make_shared<RankBoard>(num_ranks);
  const auto deadline = std::chrono::milliseconds(static_cast<std::int64_t>(options.deadline_ms));
  return train_ranks(model, plan, options, sources, observer, make_in_process_factories(num_ranks, deadline, board), board.get());
}

}  // namespace pipedream
