#pragma once

#include <string>
#include <vector>

#include "pipedream/runtime/executor.hpp"
#include "pipedream/runtime/pass_plan.hpp"
#include "pipedream/runtime/trainer.hpp"

/// What a run measured, out of what its ranks report.
namespace pipedream {

/// Steady-state time per micro-batch, from when the losses of a pass became known (`losses` by micro-batch): the time between two of them
/// over the micro-batches between, leaving out `fill` micro-batches at both ends; of whole steps where a step has several micro-batches.
/// The window is given where the pointers are not null. 0 for fewer than two losses.
[[nodiscard]] double measured_period(const std::vector<LossReport>& losses, int step_size, int fill, double* window_begin, double* window_end);

/// Adds the waits and the work of a pass to a rank's result.
void account(RankResult& result, const PassReport& report);

/// A pass with what its ranks reported.
struct PassResult {
  const PassPlan* pass;
  const std::vector<PassReport>* reports;
};

/// Means over the training passes of an epoch, and of the last evaluation in it, if there is one.
[[nodiscard]] EpochResult epoch_result(const std::vector<PassResult>& passes);

/// What an evaluation found. @param before  all passes up to it
[[nodiscard]] EvaluationPoint evaluation_point(const RunPlan& run, const std::vector<PassResult>& before, const std::vector<PassReport>& evaluation);

/// Fills in what follows from all passes: period, efficiency, samples per second, bytes, losses. `reports` are per pass and rank.
void measure(const RunPlan& run, const std::vector<std::vector<PassReport>>& reports, TrainResult& result);

/// A report as bytes and back.
[[nodiscard]] std::string to_bytes(const PassReport& report);
[[nodiscard]] PassReport pass_report_from_bytes(const std::string& bytes);

}  // namespace pipedream
