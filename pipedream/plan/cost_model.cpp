#include "pipedream/plan/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr double kMsPerPicosecond = 1e-9;

// Two things that could run side by side: the longer one counts, and what is not hidden of the shorter one.
double combine(double a, double b, double overlap) { return std::max(a, b) + (1 - overlap) * std::min(a, b); }

double slowest_ms(const CostModel& model, const StageSetting& setting, const Work* work, std::int64_t Work::*time) {
  double slowest = 0;
  for (const int k : setting.kinds) {
    const DeviceKind& kind = model.kinds[static_cast<std::size_t>(k)];
    slowest = std::max(slowest, static_cast<double>(work[kind.times].*time) * kMsPerPicosecond / kind.speed);
  }
  return slowest;
}

double reduce_once_ms(const StageSetting& setting, std::int64_t bytes) {
  if (setting.replicas == 1 || bytes == 0) return 0;
  const auto w = static_cast<double>(bytes);
  return std::min(setting.reduce[0].ms_per_byte * w + setting.reduce[0].latency_ms, setting.reduce[1].ms_per_byte * w + setting.reduce[1].latency_ms);
}

double way_ms(std::int64_t bytes, double ms_per_byte, double latency_ms) {
  return bytes == 0 ? 0 : static_cast<double>(bytes) * ms_per_byte + latency_ms;
}

}  // namespace

StageTime CostModel::time(const StageSum& sum, const StageSetting& setting, bool recompute) const {
  StageTime t;
  const double d = setting.replicas;
  t.forward_ms = slowest_ms(*this, setting, sum.work, &Work::forward_ps);
  t.backward_ms = slowest_ms(*this, setting, sum.work, &Work::backward_ps) + (recompute ? t.forward_ms : 0);
  const double update = slowest_ms(*this, setting, sum.work, &Work::update_ps);
  const double in = way_ms(sum.in_bytes, setting.in_ms_per_byte, setting.in_latency_ms);
  const double out = way_ms(sum.out_bytes, setting.out_ms_per_byte, setting.out_latency_ms);
  const double reduce = reduce_once_ms(setting, sum.work[kinds[static_cast<std::size_t>(setting.kinds.front())].times].parameter_bytes);
  // Every replica takes one step per mini-batch, but never more than one per micro-batch of its own.
  const double per_step = std::max<double>(micro_batches, d);
  t.transfer_ms = in + out;
  t.update_ms = update * d / per_step;
  t.reduce_ms = reduce * d / per_step;
  const double compute = t.forward_ms + t.backward_ms;
  const double turns = std::ceil(micro_batches / d);  // of one replica per mini-batch
  if (form == CostForm::Steady) {
    t.load_ms = combine(combine(compute + t.update_ms, t.reduce_ms, reduce_overlap), t.transfer_ms, transfer_overlap) / d;
  } else if (form == CostForm::Flush) {
    t.load_ms = (turns - 1) * combine(compute, t.transfer_ms, transfer_overlap) + update + reduce;
    t.fill_ms = compute + 2 * in;
  } else {
    t.load_ms = update + reduce;
    t.fill_ms = micro_batches * (compute + 2 * in);
  }
  return t;
}

std::int64_t CostModel::memory_bytes(const StageSum& sum, const StageSetting& setting, const InFlight& in_flight, bool recompute) const {
  const Work& work = sum.work[kinds[static_cast<std::size_t>(setting.kinds.front())].times];
  const double weights = static_cast<double>(work.parameter_bytes) * (in_flight.versions + gradient_bytes + optimizer_state);
  const std::int64_t received = count_transfers ? sum.in_bytes : 0;
  const std::int64_t kept = recompute ? received : work.stashed_bytes + received;
  const std::int64_t working = recompute ? work.stashed_bytes : 0;
  const std::int64_t buffers = count_transfers ? sum.in_bytes + sum.out_bytes : 0;
  const double total = weights + static_cast<double>(kept) * in_flight.micro_batches + static_cast<double>(working + buffers);
  return total > 9e18 ? std::numeric_limits<std::int64_t>::max() : static_cast<std::int64_t>(std::ceil(total));
}

std::int64_t CostModel::memory_limit(const StageSetting& setting) const {
  std::int64_t limit = std::numeric_limits<std::int64_t>::max();
  for (const int k : setting.kinds)
    if (const std::int64_t memory = kinds[static_cast<std::size_t>(k)].memory_bytes; memory > 0) limit = std::min(limit, memory);
  return limit;
}

double CostModel::traffic_bytes(const StageSum& sum, const StageSetting& setting) const {
  const double d = setting.replicas, per_step = std::max<double>(micro_batches, d);
  const Work& work = sum.work[kinds[static_cast<std::size_t>(setting.kinds.front())].times];
  return 2.0 * static_cast<double>(sum.in_bytes) + 2 * (d - 1) * static_cast<double>(work.parameter_bytes) / per_step;
}

double optimizer_state_factor(const std::string& optimizer) {
  if (optimizer == "sgd") return 1;  // the momentum buffer
  if (optimizer == "adam" || optimizer == "adamw") return 2;
  if (optimizer == "sgd-plain" || optimizer == "none") return 0;
  throw UsageError(fmt::format("unknown optimizer '{}'", optimizer), "choose sgd (with momentum), sgd-plain, adam, adamw or none");
}

}  // namespace pipedream
