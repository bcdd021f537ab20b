#include "cli/train_output.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>

#include "pipedream/core/json.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/report/table.hpp"

namespace pipedream::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> interrupted{false};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string ratio(double measured, double predicted) { return predicted > 0 ? fmt::format("{:.3f}", measured / predicted) : "-"; }

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string join(const std::vector<int>& numbers) { return fmt::format("{}", fmt::join(numbers, ",")); }

/// Bytes that data parallelism on the same ranks would have moved for the same micro-batches.
double data_parallel_bytes(const Plan& plan, const TrainResult& result) {
  return plan.predicted.data_parallel_bytes_per_micro_batch * static_cast<double>(result.losses.size());
}

}  // namespace

void stop_on_signals() {
  const auto handler = [](int signal) {
    interrupted = true;
    std::signal(signal, SIG_DFL);
  };
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
}

std::string render_settings(const Settings& settings) {
  std::size_t width = 0;
  for (const auto& [name, value] : settings) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : settings) text += fmt::format("  {:<{}}  {}\n", name, width, value);
  return text;
}

ProgressDisplay::ProgressDisplay(RunFolder* folder, int epochs, bool is_quiet)
    : folder_(folder), epochs_(epochs), is_quiet_(is_quiet), is_terminal_(::isatty(STDERR_FILENO) == 1) {}

ProgressDisplay::~ProgressDisplay() { clear(); }

bool ProgressDisplay::stop() { return interrupted; }

void ProgressDisplay::clear() {
  if (line_open_) fmt::print(stderr, "\r\033[K");
  line_open_ = false;
}

void ProgressDisplay::show(const std::string& line, bool force) {
  if (is_quiet_) return;
  const double pause = is_terminal_ ? 0.1 : 5.0;
  if (!force && seconds_since(shown_) < pause) return;
  shown_ = Clock::now();
  if (is_terminal_) {
    fmt::print(stderr, "\r\033[K{}", line);
    line_open_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

void ProgressDisplay::on_micro_batch(const Progress& progress) {
  if (progress.epoch != epoch_) {
    epoch_ = progress.epoch;
    epoch_start_ = shown_ = Clock::now();
    samples_ = 0;
    smooth_loss_ = progress.loss.loss;
  }
  samples_ += progress.loss.rows;
  smooth_loss_ = 0.98 * smooth_loss_ + 0.02 * progress.loss.loss;
  if (folder_ != nullptr && progress.update != last_update_ && step_samples_ > 0) {
    folder_->append_metrics(fmt::format(R"({{"step":{},"epoch":{},"loss":{},"learning_rate":{},"samples":{},"time_s":{:.6f}}})", last_update_ + 1,
                                        progress.epoch, step_loss_ / static_cast<double>(step_samples_), last_rate_, all_samples_,
                                        time_s_.value_or(seconds_since(run_start_))));
    step_samples_ = 0;
    step_loss_ = 0;
  }
  last_update_ = progress.update;
  last_rate_ = progress.learning_rate;
  step_samples_ += progress.loss.rows;
  all_samples_ += progress.loss.rows;
  step_loss_ += progress.loss.loss * static_cast<double>(progress.loss.rows);
  const double share = static_cast<double>(progress.micro_batch + 1) / progress.num_micro_batches, elapsed = seconds_since(epoch_start_);
  show(fmt::format("epoch {}{}  {:>3.0f} %  loss {:.4f}  {:.0f} samples/s  {} left", progress.epoch + 1,
                   epochs_ > 0 ? fmt::format("/{}", epochs_) : "", 100 * share, smooth_loss_, static_cast<double>(samples_) / std::max(elapsed, 1e-9),
                   format_ms(elapsed / share * (1 - share) * 1e3)),
       false);
}

void ProgressDisplay::on_evaluation(int epoch, int micro_batch, int num_micro_batches) {
  if (is_terminal_) show(fmt::format("epoch {}  evaluating {:>3.0f} %", epoch + 1, 100.0 * (micro_batch + 1) / num_micro_batches), false);
}

void ProgressDisplay::on_epoch(const EpochResult& result) {
  if (folder_ != nullptr && step_samples_ > 0) {
    folder_->append_metrics(fmt::format(R"({{"step":{},"epoch":{},"loss":{},"learning_rate":{},"samples":{},"time_s":{:.6f}}})", last_update_ + 1,
                                        result.epoch, step_loss_ / static_cast<double>(step_samples_), last_rate_, all_samples_,
                                        time_s_.value_or(seconds_since(run_start_))));
    step_samples_ = 0;
    step_loss_ = 0;
    ++last_update_;  // the next epoch's first micro-batch belongs to a later step
  }
  clear();
  if (is_quiet_) return;
  std::string line = fmt::format("epoch {}  train loss {:.4f}", result.epoch + 1, result.train_loss);
  if (result.test_loss) line += fmt::format("  test loss {:.4f}", *result.test_loss);
  if (result.test_accuracy) line += fmt::format("  test accuracy {:.2f} %", 100 * *result.test_accuracy);
  line +=
      fmt::format("  {:.0f} samples/s  {}", static_cast<double>(result.samples) / std::max(result.wall_ms, 1e-9) * 1e3, format_ms(result.wall_ms));
  fmt::print(stderr, "{}\n", line);
}

void ProgressDisplay::on_evaluated(const EvaluationPoint& point) {
  clear();
  if (is_quiet_) return;
  fmt::print(stderr, "step {}  test loss {:.4f}{}  after {} of training\n", point.steps, point.loss,
             point.accuracy ? fmt::format("  test accuracy {:.2f} %", 100 * *point.accuracy) : "", format_ms(point.training_ms));
}

std::string render_result(const Plan& plan, const TrainResult& result, const std::vector<Baseline>& baselines) {
  Table figures({"", "measured", "predicted", "ratio"});
  figures.add_row({"period per micro-batch", format_ms(result.period_ms), format_ms(plan.predicted.expected_ms()),
                   ratio(result.period_ms, plan.predicted.expected_ms())});
  for (const auto& rank : result.ranks) {
    const auto& stage = plan.stages[static_cast<std::size_t>(rank.stages.empty() ? 0 : rank.stages[0])];
    const double predicted = stage.predicted.load_ms;
    figures.add_row({fmt::format("compute of rank {} (stage {})", rank.rank, join(rank.stages)), format_ms(rank.window_compute_ms),
                     format_ms(predicted), ratio(rank.window_compute_ms, predicted)});
    figures.add_row({fmt::format("memory of rank {}", rank.rank), format_bytes(static_cast<double>(rank.peak_memory_bytes)),
                     format_bytes(static_cast<double>(stage.predicted.memory_bytes)),
                     ratio(static_cast<double>(rank.peak_memory_bytes), static_cast<double>(stage.predicted.memory_bytes))});
  }
  const double predicted_bytes = plan.predicted.bytes_per_micro_batch * static_cast<double>(result.losses.size());
  figures.add_row({"bytes between ranks, training", format_bytes(static_cast<double>(result.training_bytes_sent)), format_bytes(predicted_bytes),
                   ratio(static_cast<double>(result.training_bytes_sent), predicted_bytes)});
  std::string text = figures.text();

  Table ranks({"rank", "stage", "busy", "idle", "waits to receive", "waits to send", "reduces", "versions"});
  for (const auto& rank : result.ranks) {
    const double all = rank.compute_ms + rank.idle_ms + rank.receive_wait_ms + rank.send_wait_ms + rank.reduce_ms;
    const auto share = [&](double ms) { return fmt::format("{:.1f} %", all > 0 ? 100 * ms / all : 0); };
    ranks.add_row({std::to_string(rank.rank), join(rank.stages), share(rank.compute_ms), share(rank.idle_ms), share(rank.receive_wait_ms),
                   share(rank.send_wait_ms), share(rank.reduce_ms), std::to_string(rank.versions)});
  }
  text += "\n" + ranks.text() + "\n";
  text += fmt::format("efficiency {:.3f} (compute of the slowest rank / period)   {:.0f} samples/s\n", result.efficiency, result.samples_per_s);
  const double data_parallel = data_parallel_bytes(plan, result);
  if (data_parallel > 0)
    text += fmt::format("moved between ranks: {}; data parallelism would move {} ({:.1f} %)\n",
                        format_bytes(static_cast<double>(result.training_bytes_sent)), format_bytes(data_parallel),
                        100 * static_cast<double>(result.training_bytes_sent) / data_parallel);
  if (result.evaluations.size() > 1) {
    const EvaluationPoint& last = result.evaluations.back();
    text +=
        fmt::format("evaluated {} times; the last time after {} steps, {} samples and {} of training, {} between ranks\n", result.evaluations.size(),
                    last.steps, last.samples, format_ms(last.training_ms), format_bytes(static_cast<double>(last.training_bytes_sent)));
  }
  if (result.staleness)
    text += fmt::format("gradients were {:.2f} steps late on average, at most {}\n", result.staleness->mean, result.staleness->most);
  for (const auto& baseline : baselines)
    text += fmt::format("speed-up over {}: {:.2f}x ({} per micro-batch)\n", baseline.name, baseline.period_ms / result.period_ms,
                        format_ms(baseline.period_ms));
  return text;
}

std::string summary_json(const Plan& plan, const TrainResult& result, const std::vector<Baseline>& baselines) {
  Json json;
  json["schema"] = "pipedream.summary/1";
  json["steps"] = result.steps;
  json["samples"] = result.samples;
  const EpochResult last = result.epochs.empty() ? EpochResult{} : result.epochs.back();
  json["final_loss"] = number(last.test_loss.value_or(last.train_loss));
  json["final_accuracy"] = last.test_accuracy ? number(*last.test_accuracy) : Json(nullptr);
  json["samples_per_s"] = number(result.samples_per_s);
  json["period_ms"] = number(result.period_ms);
  json["predicted_period_ms"] = number(plan.predicted.expected_ms());
  json["prediction_error"] = result.period_ms > 0 ? number(plan.predicted.expected_ms() / result.period_ms - 1) : Json(nullptr);
  json["bytes_sent"] = result.training_bytes_sent;
  json["data_parallel_bytes"] = number(data_parallel_bytes(plan, result));
  json["staleness"] = result.staleness ? Json{{"mean", number(result.staleness->mean)}, {"most", result.staleness->most}} : Json(nullptr);
  json["ranks"] = Json::array();
  for (const auto& rank : result.ranks) {
    Json entry;
    entry["rank"] = rank.rank;
    entry["stage"] = rank.stages.empty() ? Json(nullptr) : Json(rank.stages[0]);
    entry["compute_ms"] = number(rank.compute_ms);
    entry["idle_ms"] = number(rank.idle_ms);
    entry["send_wait_ms"] = number(rank.send_wait_ms);
    entry["receive_wait_ms"] = number(rank.receive_wait_ms);
    entry["reduce_ms"] = number(rank.reduce_ms);
    entry["peak_memory_bytes"] = rank.peak_memory_bytes;
    if (!rank.stages.empty()) entry["predicted_memory_bytes"] = plan.stages[static_cast<std::size_t>(rank.stages[0])].predicted.memory_bytes;
    entry["versions"] = rank.versions;
    json["ranks"].push_back(entry);
  }
  json["efficiency"] = number(result.efficiency);
  json["resident_growth_bytes"] = result.resident_growth_bytes;
  json["epochs"] = Json::array();
  for (const auto& epoch : result.epochs) {
    Json entry;
    entry["epoch"] = epoch.epoch + 1;
    entry["train_loss"] = number(epoch.train_loss);
    entry["test_loss"] = epoch.test_loss ? number(*epoch.test_loss) : Json(nullptr);
    entry["test_accuracy"] = epoch.test_accuracy ? number(*epoch.test_accuracy) : Json(nullptr);
    entry["wall_ms"] = number(epoch.wall_ms);
    json["epochs"].push_back(entry);
  }
  json["evaluations"] = Json::array();
  for (const auto& point : result.evaluations)
    json["evaluations"].push_back({{"steps", point.steps},
                                   {"samples", point.samples},
                                   {"training_ms", number(point.training_ms)},
                                   {"bytes_sent", point.training_bytes_sent},
                                   {"loss", number(point.loss)},
                                   {"accuracy", point.accuracy ? number(*point.accuracy) : Json(nullptr)}});
  json["baselines"] = Json::array();
  for (const auto& baseline : baselines)
    json["baselines"].push_back(
        {{"name", baseline.name}, {"period_ms", baseline.period_ms}, {"speed_up", result.period_ms > 0 ? baseline.period_ms / result.period_ms : 0}});
  return json.dump(2) + "\n";
}

}  // namespace pipedream::cli
