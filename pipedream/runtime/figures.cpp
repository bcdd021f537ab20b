#include "pipedream/runtime/figures.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "pipedream/core/bytes.hpp"

namespace pipedream {
namespace {

struct Means {
  double loss = 0;
  std::int64_t rows = 0, right = 0, predictions = 0;
  [[nodiscard]] std::optional<double> accuracy() const {
    return predictions > 0 ? std::optional(static_cast<double>(right) / static_cast<double>(predictions)) : std::nullopt;
  }
};

Means means_of(const std::vector<PassReport>& reports) {
  Means means;
  for (const auto& report : reports)
    for (const auto& loss : report.losses) {
      means.loss += loss.loss * static_cast<double>(loss.rows);
      means.rows += loss.rows;
      means.right += loss.right;
      means.predictions += loss.predictions;
    }
  if (means.rows > 0) means.loss /= static_cast<double>(means.rows);
  return means;
}

double wall_of(const std::vector<PassReport>& reports) {
  double wall = 0;
  for (const auto& report : reports) wall = std::max(wall, report.wall_ms);
  return wall;
}

/// A rank's compute between two times of a pass.
double compute_between(const PassReport& report, double begin, double end) {
  double sum = 0;
  for (const auto& timed : report.actions)
    if (is_compute(timed.action.kind)) sum += std::max(0.0, std::min(end, timed.end_ms) - std::max(begin, timed.start_ms));
  return sum;
}

}  // namespace

double measured_period(const std::vector<LossReport>& losses, int step_size, int fill, double* window_begin, double* window_end) {
  const int n = static_cast<int>(losses.size());
  if (n < 2) return 0;
  // A short pass is taken as a whole, as far as it has two steps.
  const int skip = n >= 4 * fill + 2 * step_size ? (fill + step_size - 1) / step_size : 0;
  int first = (skip + 1) * step_size - 1, last = ((n - skip * step_size) / step_size) * step_size - 1;
  if (last <= first) {
    first = 0;
    last = n - 1;
  }
  const double begin = losses[static_cast<std::size_t>(first)].end_ms, end = losses[static_cast<std::size_t>(last)].end_ms;
  if (window_begin != nullptr) *window_begin = begin;
  if (window_end != nullptr) *window_end = end;
  return (end - begin) / (last - first);
}

void account(RankResult& result, const PassReport& report) {
  double busy = 0;
  for (const auto& timed : report.actions) {
    const double ms = timed.end_ms - timed.start_ms;
    busy += ms;
    if (is_receive(timed.action.kind)) result.receive_wait_ms += ms;
    else if (is_send(timed.action.kind)) result.send_wait_ms += ms;
    else if (timed.action.kind == ActionKind::Reduce || timed.action.kind == ActionKind::Wait) result.reduce_ms += ms;
    else result.compute_ms += ms;
  }
  result.idle_ms += std::max(0.0, report.wall_ms - busy);
}

EpochResult epoch_result(const std::vector<PassResult>& passes) {
  EpochResult result;
  for (const auto& [pass, reports] : passes) {
    const Means means = means_of(*reports);
    if (!pass->training) {
      result.test_loss = means.loss;
      result.test_accuracy = means.accuracy();
      continue;
    }
    result.epoch = pass->epoch;
    result.train_loss += means.loss * static_cast<double>(pass->rows);
    result.samples += pass->rows;
    result.wall_ms += wall_of(*reports);
  }
  if (result.samples > 0) result.train_loss /= static_cast<double>(result.samples);
  return result;
}

EvaluationPoint evaluation_point(const RunPlan& run, const std::vector<PassResult>& before, const std::vector<PassReport>& evaluation) {
  EvaluationPoint point;
  for (const auto& [pass, reports] : before) {
    if (!pass->training) continue;
    point.steps += pass->groups->num_steps(run.loss_chunk);
    point.samples += pass->rows;
    point.training_ms += wall_of(*reports);
    for (const auto& report : *reports) point.training_bytes_sent += report.bytes_sent;
  }
  const Means means = means_of(evaluation);
  point.loss = means.loss;
  point.accuracy = means.accuracy();
  return point;
}

namespace {

/// How late the gradients of asynchronous data parallelism were, in steps of their shards, and how many of each shard.
void measure_staleness(const std::vector<std::vector<PassReport>>& reports, TrainResult& result) {
  for (const auto& pass : reports)
    for (std::size_t rank = 0; rank < pass.size(); ++rank)
      if (!pass[rank].applied.empty()) {
        result.applied.resize(pass.size());
        auto& all = result.applied[rank];
        all.insert(all.end(), pass[rank].applied.begin(), pass[rank].applied.end());
      }
  double sum = 0, count = 0, most = 0;
  for (const auto& shard : result.applied)
    for (std::size_t step = 0; step < shard.size(); ++step) {
      const auto late = static_cast<double>(static_cast<std::int64_t>(step) - shard[step].read_version);
      sum += late;
      most = std::max(most, late);
      ++count;
    }
  if (count > 0) result.staleness = Staleness{sum / count, static_cast<std::int64_t>(most)};
}

}  // namespace

void measure(const RunPlan& run, const std::vector<std::vector<PassReport>>& reports, TrainResult& result) {
  double duration = 0, wall = 0, micro_batches = 0;
  for (std::size_t i = 0; i < run.passes.size(); ++i) {
    const PassPlan& pass = run.passes[i];
    if (!pass.training) continue;
    result.samples += pass.rows;
    result.steps += pass.groups->num_steps(run.loss_chunk);
    const double pass_wall = wall_of(reports[i]);
    wall += pass_wall;
    std::vector<LossReport> losses;
    for (const auto& report : reports[i]) losses.insert(losses.end(), report.losses.begin(), report.losses.end());
    std::sort(losses.begin(), losses.end(), [](const auto& a, const auto& b) { return a.micro_batch < b.micro_batch; });
    for (const auto& loss : losses) result.losses.push_back(loss.loss);
    int step_size = pass.groups->step_size(run.loss_chunk);
    for (const auto& ranks : pass.schedule->chunk_ranks) step_size = std::lcm(step_size, static_cast<int>(ranks.size()));
    double begin = 0, end = pass_wall;
    const double period = measured_period(losses, step_size, 2 * pass.schedule->num_ranks(), &begin, &end);
    if (period <= 0) continue;
    duration += end - begin;
    micro_batches += (end - begin) / period;
    for (auto& rank : result.ranks) rank.window_compute_ms += compute_between(reports[i][static_cast<std::size_t>(rank.rank)], begin, end);
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
  measure_staleness(reports, result);
}

std::string to_bytes(const PassReport& report) {
  ByteWriter writer;
  writer.put(report.actions);
  writer.put(report.losses);
  writer.put(report.applied);
  writer.put(report.wall_ms);
  writer.put(report.bytes_sent);
  return writer.take();
}

PassReport pass_report_from_bytes(const std::string& bytes) {
  ByteReader reader(bytes);
  PassReport report;
  report.actions = reader.get_vector<TimedAction>();
  report.losses = reader.get_vector<LossReport>();
  report.applied = reader.get_vector<AppliedGradient>();
  report.wall_ms = reader.get<double>();
  report.bytes_sent = reader.get<std::int64_t>();
  return report;
}

}  // namespace pipedream
