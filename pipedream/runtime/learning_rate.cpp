#include "pipedream/runtime/learning_rate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <string_view>

#include "pipedream/core/error.hpp"

namespace pipedream {

LearningRateSchedule parse_learning_rate_schedule(const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return UsageError(fmt::format("'{}' is no learning-rate schedule: {}", text, why),
                      "write constant, step:every=100,factor=0.1 or cosine:floor=0.01, each also with warmup=N");
  };
  LearningRateSchedule schedule;
  const auto colon = text.find(':');
  schedule.kind = text.substr(0, colon);
  if (schedule.kind != "constant" && schedule.kind != "step" && schedule.kind != "cosine") throw bad("unknown kind");
  std::string_view rest = colon == std::string::npos ? std::string_view() : std::string_view(text).substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const auto equals = item.find('=');
    if (equals == std::string_view::npos) throw bad(fmt::format("'{}' is not key=number", item));
    const std::string_view key = item.substr(0, equals), number = item.substr(equals + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (error != std::errc() || end != number.data() + number.size() || !(value >= 0) || value > 1e15)
      throw bad(fmt::format("'{}' is not a number of at least 0", number));
    if (key == "warmup") schedule.warmup_steps = static_cast<std::int64_t>(value);
    else if (key == "every" && schedule.kind == "step") schedule.step_every = static_cast<std::int64_t>(value);
    else if (key == "factor" && schedule.kind == "step") schedule.step_factor = value;
    else if (key == "floor" && schedule.kind == "cosine") schedule.floor = value;
    else throw bad(fmt::format("unknown key '{}'", key));
  }
  if (schedule.kind == "step" && schedule.step_every < 1) throw bad("every=N with N of at least 1 is missing");
  return schedule;
}

double learning_rate_at(const LearningRateSchedule& schedule, double base, std::int64_t step, std::int64_t total) {
  if (step < schedule.warmup_steps) return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  if (schedule.kind == "step") return base * std::pow(schedule.step_factor, static_cast<double>(step / schedule.step_every));
  if (schedule.kind == "cosine") {
    const double span = static_cast<double>(std::max<std::int64_t>(1, total - schedule.warmup_steps));
    const double done = std::min(1.0, static_cast<double>(step - schedule.warmup_steps) / span);
    return base * (schedule.floor + (1 - schedule.floor) * (1 + std::cos(std::numbers::pi * done)) / 2);
  }
  return base;
}

}  // namespace pipedream
