#include "pipedream/plan/in_flight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::array<const char*, 6> kPolicies{"flush", "stash", "vertical-sync", "2bw", "predict", "none"};

int ceil_divide(int a, int b) { return (a + b - 1) / b; }

int versions_of(const std::string& policy, const StagePosition& at, int in_flight, int extra) {
  if (policy == "stash" || policy == "predict") return in_flight;
  if (policy == "2bw") return 2;
  if (policy == "vertical-sync") return std::max(in_flight, at.ranks_from_here + extra);
  return 1;
}

std::string known_schedules() {
  std::string text;
  for (const auto& [name, policy] : planned_schedules()) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& planned_schedules() {
  static const std::vector<std::pair<std::string, std::string>> schedules{
      {"1f1b-async", "stash"}, {"1f1b", "flush"}, {"gpipe", "flush"}, {"model-parallel", "flush"}, {"data-parallel", "flush"}};
  return schedules;
}

std::string default_policy(const std::string& schedule) {
  for (const auto& [name, policy] : planned_schedules())
    if (name == schedule) return policy;
  throw UsageError(fmt::format("no plan can be made for the schedule '{}'", schedule), "plan for one of: " + known_schedules());
}

bool flushes(const std::string& schedule) { return schedule != "1f1b-async"; }

InFlightModel in_flight_model(const std::string& schedule, const std::string& policy_or_empty, int m, int extra) {
  const std::string policy = policy_or_empty.empty() ? default_policy(schedule) : policy_or_empty;
  if (std::find(kPolicies.begin(), kPolicies.end(), policy) == kPolicies.end())
    throw UsageError(fmt::format("unknown version policy '{}'", policy), "choose flush, stash, vertical-sync, 2bw, predict or none");
  if (policy == "flush" && !flushes(schedule))
    throw UsageError(fmt::format("{} never flushes: policy flush is not possible", schedule),
                     "use 1f1b, or policy stash, vertical-sync, 2bw or predict");
  const auto with = [policy, extra](auto in_flight) -> InFlightModel {
    return [=](const StagePosition& at) {
      const int count = in_flight(at);
      return InFlight{count, versions_of(policy, at, count, extra)};
    };
  };
  const auto warm_up = [extra](const StagePosition& at) { return (at.ranks_from_here - 1) / at.replicas + 1 + extra; };
  if (schedule == "1f1b-async") return with(warm_up);
  if (schedule == "1f1b") return with([=](const StagePosition& at) { return std::min(std::max(1, ceil_divide(m, at.replicas)), warm_up(at)); });
  if (schedule == "gpipe") return with([=](const StagePosition& at) { return std::max(1, ceil_divide(m, at.replicas)); });
  if (schedule == "model-parallel" || schedule == "data-parallel") return with([](const StagePosition&) { return 1; });
  (void)default_policy(schedule);
  throw InternalError("a schedule without an in-flight model");
}

}  // namespace pipedream
