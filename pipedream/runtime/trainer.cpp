#include "pipedream/runtime/trainer.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "pipedream/comm/in_process.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/runtime/evaluation.hpp"
#include "pipedream/runtime/memory_meter.hpp"
#include "pipedream/runtime/stage.hpp"
#include "pipedream/runtime/step_groups.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

std::vector<std::vector<std::string>> stage_layers(const Plan& plan) {
  std::vector<std::vector<std::string>> stages;
  for (const auto& stage : plan.stages) stages.push_back(stage.layers);
  return stages;
}

/// One pass over data: what all ranks do at the same time.
struct PassPlan {
  int epoch = 0;
  bool training = true;
  Schedule schedule;
  std::unique_ptr<StepGroups> groups;
  std::int64_t first_update = 0;  // updates of the loss chunk before this pass
  std::int64_t rows = 0;
};

/// Everything the ranks of a run share; written before they start, except under the mutex.
struct Run {
  const Model& model;
  const Plan& plan;
  const TrainOptions& options;
  const SourceFactory& sources;
  TrainObserver& observer;
  StageGraph graph;
  int loss_chunk = 0;
  std::vector<PassPlan> passes;
  std::int64_t total_updates = 0;
  std::vector<int> slots;  // per chunk
  std::shared_ptr<RankBoard> board;

  std::mutex mutex;                              // guards everything below and calls of the observer
  std::vector<std::vector<PassReport>> reports;  // per pass and rank
  std::vector<RankResult> ranks;
  std::vector<std::tuple<int, std::size_t, NamedWeight>> weights;  // (node, position in its chunk, weight)
  std::exception_ptr failure;
  int failed_rank = -1;
};

void plan_passes(Run& run) {
  const auto first = run.sources({});
  const int epoch_size = first->num_micro_batches();
  if (epoch_size < 1) throw UsageError("the training data has no micro-batch", "choose another data set or a smaller --micro-batch");
  std::map<int, Schedule> made;
  std::int64_t steps_left = run.options.steps > 0 ? run.options.steps : -1;
  for (int epoch = 0; steps_left != 0 && (run.options.steps > 0 || epoch < run.options.epochs); ++epoch) {
    const auto source = run.sources({epoch, true, {}, 1});
    int size = source->num_micro_batches();
    if (steps_left > 0) {
      // The micro-batches of the steps that are left: a whole epoch's schedule tells the size of a step.
      auto& whole = made[size];
      if (whole.ranks.empty()) whole = schedule_of(run.plan, run.graph, size, run.options.extra_in_flight);
      const StepGroups groups(whole, run.loss_chunk, [&](int i) { return source->rows(i); });
      const auto steps = std::min<std::int64_t>(steps_left, groups.num_steps(run.loss_chunk));
      size = static_cast<int>(std::min<std::int64_t>(size, steps * groups.step_size(run.loss_chunk)));
      steps_left -= steps;
    }
    auto& schedule = made[size];
    if (schedule.ranks.empty()) schedule = schedule_of(run.plan, run.graph, size, run.options.extra_in_flight);
    PassPlan pass;
    pass.epoch = epoch;
    pass.schedule = schedule;
    pass.groups = std::make_unique<StepGroups>(schedule, run.loss_chunk, [&](int i) { return source->rows(i); });
    pass.first_update = run.total_updates;
    for (int i = 0; i < size; ++i) pass.rows += source->rows(i);
    run.total_updates += pass.groups->num_steps(run.loss_chunk);
    for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
      auto& slots = run.slots[static_cast<std::size_t>(chunk)];
      slots = std::max(slots, versions_needed(schedule, chunk));
    }
    run.passes.push_back(std::move(pass));
    if (!run.options.evaluate) continue;
    const auto test = run.sources({epoch, false, {}, 1});
    if (test == nullptr || test->num_micro_batches() == 0) continue;
    PassPlan evaluation;
    evaluation.epoch = epoch;
    evaluation.training = false;
    evaluation.schedule = evaluation_schedule(schedule, test->num_micro_batches());
    evaluation.groups = std::make_unique<StepGroups>(evaluation.schedule, run.loss_chunk, [&](int i) { return test->rows(i); });
    run.passes.push_back(std::move(evaluation));
  }
}

EpochResult summarize(const Run& run, std::size_t pass_index) {
  const PassPlan& pass = run.passes[pass_index];
  EpochResult result;
  result.epoch = pass.epoch;
  const auto mean = [&](std::size_t index, std::int64_t& right, std::int64_t& predictions) {
    double sum = 0;
    std::int64_t rows = 0;
    for (const auto& report : run.reports[index])
      for (const auto& loss : report.losses) {
        sum += loss.loss * static_cast<double>(loss.rows);
        rows += loss.rows;
        right += loss.right;
        predictions += loss.predictions;
      }
    return rows == 0 ? 0 : sum / static_cast<double>(rows);
  };
  std::int64_t right = 0, predictions = 0;
  result.train_loss = mean(pass_index, right, predictions);
  result.samples = pass.rows;
  for (const auto& report : run.reports[pass_index]) result.wall_ms = std::max(result.wall_ms, report.wall_ms);
  if (pass_index + 1 < run.passes.size() && !run.passes[pass_index + 1].training) {
    right = predictions = 0;
    result.test_loss = mean(pass_index + 1, right, predictions);
    if (predictions > 0) result.test_accuracy = static_cast<double>(right) / static_cast<double>(predictions);
  }
  return result;
}

PassOptions pass_options(Run& run, const PassPlan& pass) {
  PassOptions options;
  options.training = pass.training;
  options.clip_norm = run.options.clip_norm;
  options.bounded_messages = pass.training ? 0 : pass.schedule.num_chunks() + 4;
  options.stop = [&run] { return run.observer.stop(); };
  const auto update_of = [&run, &pass](int micro_batch) { return pass.first_update + pass.groups->step_of(run.loss_chunk, micro_batch); };
  options.learning_rate = [&run, update_of](int micro_batch) {
    return learning_rate_at(run.options.learning_rate_schedule, run.options.optimizer.learning_rate, update_of(micro_batch), run.total_updates);
  };
  options.on_loss = [&run, &pass, update_of, rate = options.learning_rate](const LossReport& loss) {
    const std::lock_guard lock(run.mutex);
    if (!pass.training) return run.observer.on_evaluation(pass.epoch, loss.micro_batch, pass.schedule.micro_batches);
    run.observer.on_micro_batch(
        {pass.epoch, loss.micro_batch, pass.schedule.micro_batches, update_of(loss.micro_batch), rate(loss.micro_batch), loss});
  };
  return options;
}

void account(RankResult& result, const PassReport& report) {
  double busy = 0;
  for (const auto& timed : report.actions) {
    const double ms = timed.end_ms - timed.start_ms;
    busy += ms;
    if (is_receive(timed.action.kind)) result.receive_wait_ms += ms;
    else if (is_send(timed.action.kind)) result.send_wait_ms += ms;
    else if (timed.action.kind == ActionKind::Reduce) result.reduce_ms += ms;
    else result.compute_ms += ms;
  }
  result.idle_ms += std::max(0.0, report.wall_ms - busy);
}

/// A tied parameter counts once, at its first place.
bool is_copy_of_tie(const Model& model, const std::string& name) {
  for (const WeightTie& tie : model.ties)
    for (std::size_t i = 1; i < tie.places.size(); ++i)
      if (model.nodes[static_cast<std::size_t>(tie.places[i].layer)].name + "." + tie.places[i].parameter == name) return true;
  return false;
}

void collect_weights(Run& run, Stage& stage) {
  const auto& names = stage.versions().parameter_names();
  const auto& nodes = stage.versions().parameter_nodes();
  auto& newest = stage.versions().at(stage.versions().newest());
  for (std::size_t i = 0; i < names.size(); ++i)
    if (!is_copy_of_tie(run.model, names[i])) run.weights.emplace_back(nodes[i], i, NamedWeight{names[i], newest.parameters[i].detach().clone()});
}

void run_rank(Run& run, Transport& transport) {
  const int rank = transport.rank();
  MemoryMeter meter;
  const MemoryMeter::Scope scope(meter);
  run.board->set(rank, "making its layers");
  std::map<int, std::unique_ptr<Stage>> stages;
  std::map<int, Stage*> views;
  const Schedule& schedule = run.passes[0].schedule;
  bool split = false;
  for (const auto& pass : run.passes)
    for_each_action(pass.schedule, rank, [&](const Action& action) { split = split || action.kind == ActionKind::BackwardInput; });
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    StageOptions options{run.options.seed, run.slots[static_cast<std::size_t>(chunk)], run.plan.stages[static_cast<std::size_t>(chunk)].recompute,
                         split, run.options.optimizer};
    stages[chunk] = std::make_unique<Stage>(run.model, run.graph, chunk, options);
    views[chunk] = stages[chunk].get();
  }
  Executor executor(run.model, run.graph, transport, views, run.board.get());
  std::vector<bool> wanted(run.model.inputs.size(), false);
  int stride = 0;
  for (const auto& [chunk, stage] : stages) {
    for (const int input : stage->layers().model_inputs) wanted[static_cast<std::size_t>(input)] = true;
    if (!stage->layers().model_inputs.empty())
      stride = std::gcd(stride, static_cast<int>(schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size()));
  }
  stride = std::max(1, stride);
  RankResult result;
  result.rank = rank;
  for (std::size_t i = 0; i < run.passes.size(); ++i) {
    PassPlan& pass = run.passes[i];
    run.board->set(rank, "preparing its data");
    const auto source = run.sources({pass.epoch, pass.training, wanted, stride});
    const std::int64_t sent_before = transport.bytes_sent();
    PassReport report = executor.run(pass.schedule, *source, *pass.groups, pass_options(run, pass));
    if (pass.training) {
      account(result, report);
      result.training_bytes_sent += transport.bytes_sent() - sent_before;
    }
    {
      const std::lock_guard lock(run.mutex);
      run.reports[i][static_cast<std::size_t>(rank)] = std::move(report);
    }
    transport.barrier();
    const bool epoch_ends = i + 1 == run.passes.size() || run.passes[i + 1].training;
    if (rank == 0 && epoch_ends) {
      const std::lock_guard lock(run.mutex);
      run.observer.on_epoch(summarize(run, pass.training ? i : i - 1));
    }
  }
  result.peak_memory_bytes = meter.peak_bytes();
  result.bytes_sent = transport.bytes_sent();
  const std::lock_guard lock(run.mutex);
  for (auto& [chunk, stage] : stages) {
    result.stages.push_back(chunk);
    result.versions = std::max(result.versions, stage->versions().peak_versions());
    if (run.options.collect_weights && schedule.chunk_ranks[static_cast<std::size_t>(chunk)][0] == rank) collect_weights(run, *stage);
  }
  run.ranks[static_cast<std::size_t>(rank)] = std::move(result);
}

void run_all_ranks(Run& run, int num_ranks) {
  const auto deadline = std::chrono::milliseconds(static_cast<std::int64_t>(run.options.deadline_ms));
  run.board = std::make_shared<RankBoard>(num_ranks);
  auto transports = make_in_process_transports(num_ranks, deadline, run.board);
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int threads = run.options.threads_per_rank > 0 ? run.options.threads_per_rank : std::max(1, cores / num_ranks);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < num_ranks; ++rank)
      ranks.emplace_back([&run, &transport = *transports[static_cast<std::size_t>(rank)], rank, threads] {
        try {
          at::set_num_threads(threads);
          run_rank(run, transport);
        } catch (const std::exception& error) {
          {
            const std::lock_guard lock(run.mutex);
            if (!run.failure) {
              run.failure = std::current_exception();
              run.failed_rank = rank;
            }
          }
          run.board->set(rank, fmt::format("failed: {}", error.what()));
          transport.abort(fmt::format("stopped because rank {} failed", rank));
        }
      });
  }
  if (run.failure) std::rethrow_exception(run.failure);
}

/// Per rank: its compute between two times of a pass.
double compute_between(const PassReport& report, double begin, double end) {
  double sum = 0;
  for (const auto& timed : report.actions)
    if (is_compute(timed.action.kind)) sum += std::max(0.0, std::min(end, timed.end_ms) - std::max(begin, timed.start_ms));
  return sum;
}

void measure(const Run& run, TrainResult& result) {
  double duration = 0, wall = 0;
  double micro_batches = 0;
  for (std::size_t i = 0; i < run.passes.size(); ++i) {
    const PassPlan& pass = run.passes[i];
    if (!pass.training) continue;
    result.samples += pass.rows;
    result.steps += pass.groups->num_steps(run.loss_chunk);
    std::vector<LossReport> losses;
    double pass_wall = 0;
    for (const auto& report : run.reports[i]) {
      losses.insert(losses.end(), report.losses.begin(), report.losses.end());
      pass_wall = std::max(pass_wall, report.wall_ms);
    }
    wall += pass_wall;
    std::sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.micro_batch < b.micro_batch; });
    for (const auto& loss : losses) result.losses.push_back(loss.loss);
    int step_size = pass.groups->step_size(run.loss_chunk);
    for (const auto& ranks : pass.schedule.chunk_ranks) step_size = std::lcm(step_size, static_cast<int>(ranks.size()));
    double begin = 0, end = pass_wall;
    const double period = measured_period(losses, step_size, 2 * pass.schedule.num_ranks(), &begin, &end);
    if (period <= 0) continue;
    duration += end - begin;
    micro_batches += (end - begin) / period;
    for (auto& rank : result.ranks) rank.window_compute_ms += compute_between(run.reports[i][static_cast<std::size_t>(rank.rank)], begin, end);
  }
  result.period_ms = micro_batches > 0 ? duration / micro_batches : 0;
  result.samples_per_s = wall > 0 ? static_cast<double>(result.samples) / wall * 1e3 : 0;
  double slowest = 0;
  for (auto& rank : result.ranks) {
    if (micro_batches > 0) rank.window_compute_ms /= micro_batches;
    slowest = std::max(slowest, rank.window_compute_ms);
    result.bytes_sent += rank.bytes_sent;
    result.training_bytes_sent += rank.training_bytes_sent;
  }
  if (result.period_ms > 0) result.efficiency = slowest / result.period_ms;
}

void collect_trace(const Run& run, TrainResult& result) {
  result.trace.source = "measured";
  result.trace.title = fmt::format("{} {} {}", run.plan.model, run.plan.schedule, run.plan.shape());
  result.trace.num_ranks = run.passes[0].schedule.num_ranks();
  for (const auto& report : run.reports[0]) {
    const auto n = std::min(report.actions.size(), run.options.trace_actions);
    result.trace.actions.insert(result.trace.actions.end(), report.actions.begin(), report.actions.begin() + static_cast<std::ptrdiff_t>(n));
  }
}

}  // namespace

double measured_period(const std::vector<LossReport>& losses, int step_size, int fill, double* window_begin, double* window_end) {
  const int n = static_cast<int>(losses.size());
  if (n < 2) return 0;
  // Window from the end of one step to the end of a later one. A short pass is taken as a whole, as far as it has two steps.
  const int skip = n >= 4 * fill + 2 * step_size ? (fill + step_size - 1) / step_size : 0;
  int first = skip * step_size + step_size - 1, last = ((n - 1 - skip * step_size + 1) / step_size) * step_size - 1;
  if (last <= first) {
    first = 0;
    last = n - 1;
  }
  const double begin = losses[static_cast<std::size_t>(first)].end_ms, end = losses[static_cast<std::size_t>(last)].end_ms;
  if (window_begin != nullptr) *window_begin = begin;
  if (window_end != nullptr) *window_end = end;
  return (end - begin) / (last - first);
}

Schedule schedule_of(const Plan& plan, const StageGraph& graph, int micro_batches, int extra_in_flight) {
  ScheduleRequest request;
  request.name = plan.schedule;
  request.policy = plan.policy;
  for (const auto& stage : plan.stages) request.chunk_ranks.push_back(stage.ranks);
  request.edges = graph.edge_list();
  request.micro_batches = micro_batches;
  request.step_micro_batches = plan.micro_batches;
  request.extra_in_flight = extra_in_flight;
  return make_schedule(request);
}

TrainResult train(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources, TrainObserver& observer) {
  validate(plan, "plan");
  validate(options.optimizer);
  Run run{model, plan, options, sources, observer, cut_model(model, stage_layers(plan)), 0, {}, 0, {}, {}, {}, {}, {}, {}, {}, -1};
  for (std::size_t chunk = 0; chunk < run.graph.chunks.size(); ++chunk)
    if (run.graph.chunks[chunk].has_loss) run.loss_chunk = static_cast<int>(chunk);
  run.slots.assign(plan.stages.size(), 1);
  plan_passes(run);
  const int num_ranks = run.passes[0].schedule.num_ranks();
  run.reports.assign(run.passes.size(), std::vector<PassReport>(static_cast<std::size_t>(num_ranks)));
  run.ranks.resize(static_cast<std::size_t>(num_ranks));
  run_all_ranks(run, num_ranks);
  TrainResult result;
  result.ranks = std::move(run.ranks);
  measure(run, result);
  for (std::size_t i = 0; i < run.passes.size(); ++i)
    if (run.passes[i].training) result.epochs.push_back(summarize(run, i));
  collect_trace(run, result);
  std::stable_sort(run.weights.begin(), run.weights.end(), [](const auto& a, const auto& b) {
    return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
  });
  for (auto& [node, position, weight] : run.weights) result.weights.push_back(std::move(weight));
  return result;
}

}  // namespace pipedream
