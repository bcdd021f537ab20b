#pragma once

#include <cstdint>
#include <string>

namespace pipedream {

/// The learning rate as a function of the number of the update.
struct LearningRateSchedule {
  std::string kind = "constant";  ///< "constant", "step", "cosine"
  std::int64_t warmup_steps = 0;  ///< linear from 1/warmup_steps of the base rate up to it
  std::int64_t step_every = 0;    ///< "step": updates between two drops
  double step_factor = 0.1;       ///< "step": factor of a drop
  double floor = 0;               ///< "cosine": share of the base rate at the end

  bool operator==(const LearningRateSchedule&) const = default;
};

/// "constant", "step:every=100,factor=0.1", "cosine:floor=0.01", each with "warmup=N" as a further number.
/// @throws UsageError for anything else
[[nodiscard]] LearningRateSchedule parse_learning_rate_schedule(const std::string& text);

/// The rate of update `step` (from 0) out of `total`.
///   step:   base * factor^floor(step / every)
///   cosine: base * (floor + (1 - floor) * (1 + cos(pi * (step - warmup) / (total - warmup))) / 2)
[[nodiscard]] double learning_rate_at(const LearningRateSchedule& schedule, double base, std::int64_t step, std::int64_t total);

}  // namespace pipedream
