#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// Which micro-batches each optimizer step of each chunk consumes, read off the schedule.
///
/// The loss is scaled so that a step of the chunk that has it follows the gradient of the mean over the rows of its micro-batches. Where
/// another chunk takes more or fewer micro-batches a step (replicas of an asynchronous schedule), its gradients are scaled once more, so
/// that each step of every chunk follows the mean over its own micro-batches.
class StepGroups {
 public:
  /// @param rows  rows of a micro-batch @param loss_chunk  the chunk that has the loss
  StepGroups(const Schedule& schedule, int loss_chunk, const std::function<std::int64_t(int)>& rows);

  [[nodiscard]] int num_steps(int chunk) const { return static_cast<int>(last_[static_cast<std::size_t>(chunk)].size()); }
  /// The step (from 0, within the pass) of `chunk` that takes the gradient of a micro-batch.
  [[nodiscard]] int step_of(int chunk, int micro_batch) const;
  /// Micro-batches of a full step of a chunk.
  [[nodiscard]] int step_size(int chunk) const;
  /// What the gradient of the micro-batch's mean loss is multiplied by: rows / rows of the loss chunk's step.
  [[nodiscard]] double loss_scale(int micro_batch) const;
  /// What a chunk's gradients of step `step` on the replica that ran `micro_batch` are multiplied by; 1 where its steps are the loss chunk's.
  [[nodiscard]] double correction(int chunk, int micro_batch) const;

 private:
  [[nodiscard]] std::int64_t rows_between(int begin, int end) const;
  [[nodiscard]] std::int64_t group_rows(int chunk, int step) const;

  int loss_chunk_;
  std::vector<std::vector<int>> last_;     // per chunk and step: the last micro-batch it takes, ascending
  std::vector<std::int64_t> rows_before_;  // prefix sums over micro-batches
};

}  // namespace pipedream
