#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/run_folder.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/trainer.hpp"

/// What the user of `pipedream train` sees. Text of tables is returned, progress goes to standard error.
namespace pipedream::cli {

/// The settings that matter, one a line.
using Settings = std::vector<std::pair<std::string, std::string>>;
[[nodiscard]] std::string render_settings(const Settings& settings);

/// One line that is redrawn on a terminal; plain lines every few seconds elsewhere. Writes metrics.jsonl too.
class ProgressDisplay final : public TrainObserver {
 public:
  /// @param folder may be null @param epochs 0: not known
  ProgressDisplay(RunFolder* folder, int epochs, bool is_quiet);
  ~ProgressDisplay() override;
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void on_micro_batch(const Progress& progress) override;
  void on_evaluation(int epoch, int micro_batch, int num_micro_batches) override;
  void on_epoch(const EpochResult& result) override;
  void on_evaluated(const EvaluationPoint& point) override;
  bool stop() override;
  /// What is told from now on happened then, since the run began.
  void set_time(double seconds) { time_s_ = seconds; }

 private:
  void show(const std::string& line, bool force);
  void clear();

  RunFolder* folder_;
  int epochs_;
  bool is_quiet_, is_terminal_;
  bool line_open_ = false;
  std::chrono::steady_clock::time_point shown_{}, epoch_start_ = std::chrono::steady_clock::now();
  std::optional<double> time_s_;
  int epoch_ = -1;
  std::int64_t samples_ = 0, step_samples_ = 0, all_samples_ = 0;
  double smooth_loss_ = 0, step_loss_ = 0;
  std::int64_t last_update_ = 0;
  double last_rate_ = 0;
  std::chrono::steady_clock::time_point run_start_ = std::chrono::steady_clock::now();
};

/// One device, measured in this run.
struct Baseline {
  std::string name;      ///< "one device, one thread"
  double period_ms = 0;  ///< per micro-batch
};

/// Measured beside predicted, each with its ratio; bytes beside what data parallelism would move; the speed-ups.
[[nodiscard]] std::string render_result(const Plan& plan, const TrainResult& result, const std::vector<Baseline>& baselines);

/// RUN/summary.json (docs/cli.md).
[[nodiscard]] std::string summary_json(const Plan& plan, const TrainResult& result, const std::vector<Baseline>& baselines);

/// After this, SIGINT and SIGTERM make ProgressDisplay::stop() answer true; a second signal kills.
void stop_on_signals();

}  // namespace pipedream::cli
