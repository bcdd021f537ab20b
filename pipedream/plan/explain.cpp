#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

// With one micro-batch in flight all stages take their turns: the longest turn counts. Else the largest share of the period.
const StagePlan& slowest_stage(const Plan& plan) {
  const auto share = [&](const StagePlan& stage) {
    const StagePrediction& p = stage.predicted;
    return plan.schedule == "model-parallel" ? p.forward_ms + p.backward_ms : p.load_ms;
  };
  return *std::max_element(plan.stages.begin(), plan.stages.end(), [&](const StagePlan& a, const StagePlan& b) { return share(a) < share(b); });
}

// What a stage spends its share of the period on, and how long.
struct Resource {
  const char* name;
  double ms;
};
std::array<Resource, 3> resources(const StagePlan& stage) {
  const StagePrediction& p = stage.predicted;
  const double d = stage.replicas();
  return {Resource{"compute", (p.forward_ms + p.backward_ms + p.update_ms) / d}, Resource{"transfer", p.transfer_ms / d},
          Resource{"reduction", p.reduce_ms / d}};
}
Resource longest(const StagePlan& stage) {
  const auto all = resources(stage);
  return *std::max_element(all.begin(), all.end(), [](const Resource& a, const Resource& b) { return a.ms < b.ms; });
}

bool is_original(const PlanOptions& options) { return options.cost_model == "released" || options.cost_model == "paper"; }

const char* how_they_add_up(const PlanOptions& options) {
  if (is_original(options)) return "; the original adds reductions up level by level";
  if (options.transfer_overlap < 1 || options.reduce_overlap < 1) return "; what is not hidden is added";
  if (options.schedule == "model-parallel") return "; one comes after the other";
  return flushes(options.schedule) ? "; transfers run beside the compute, the reduction comes after it"
                                   : "; they run side by side, the longest counts";
}

std::string bottleneck(const Plan& plan, const PlanOptions& options) {
  const StagePlan& stage = slowest_stage(plan);
  const auto [compute, transfer, reduce] = resources(stage);
  std::string text = fmt::format("bottleneck: stage {} ({}, {} replica{}), limited by {}\n", stage.name,
                                 stage.layers.size() == 1 ? stage.layers.front() : stage.layers.front() + " to " + stage.layers.back(),
                                 stage.replicas(), stage.replicas() == 1 ? "" : "s", longest(stage).name);
  text += fmt::format("  per micro-batch of the pipeline: compute {}, transfer {}, reduction {}{}\n", format_ms(compute.ms), format_ms(transfer.ms),
                      format_ms(reduce.ms), how_they_add_up(options));
  double busy = 0;
  for (const StagePlan& other : plan.stages) busy += (other.predicted.forward_ms + other.predicted.backward_ms + other.predicted.update_ms);
  const double ideal = busy / plan.num_ranks();
  text +=
      fmt::format("  all compute spread evenly over {} device{} would take {}: this plan reaches {:.0f} % of that speed\n", plan.num_ranks(),
                  plan.num_ranks() == 1 ? "" : "s", format_ms(ideal), plan.predicted.period_ms > 0 ? 100 * ideal / plan.predicted.period_ms : 100);
  return text;
}

// The same question with something changed, and what that would give.
std::string what_if(const std::string& name, const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan) {
  try {
    const Plan other = make_plan(profile, cluster, options);
    const double gain = other.predicted.period_ms > 0 ? plan.predicted.period_ms / other.predicted.period_ms : 1;
    if (gain > 1.0005)
      return fmt::format("  {:<27} {} ({}), shape {}\n", name, format_ms(other.predicted.period_ms),
                         gain < 1.1 ? fmt::format("{:.1f} % faster", 100 * (gain - 1)) : fmt::format("{:.2f}x as fast", gain), other.shape());
    if (gain < 0.9995)
      return fmt::format("  {:<27} {} (slower: every device must be used), shape {}\n", name, format_ms(other.predicted.period_ms), other.shape());
    return fmt::format("  {:<27} no gain\n", name);
  } catch (const InfeasibleError&) {
    return fmt::format("  {:<27} no plan\n", name);
  }
}

Cluster with_one_more(Cluster cluster) {
  if (!cluster.links.empty()) return cluster;
  const int all = cluster.num_devices(), top = cluster.levels.empty() ? 1 : cluster.levels.back().size;
  if (cluster.levels.empty()) cluster.levels.push_back({1, 1e300, 0, false});
  ++cluster.levels.back().size;
  for (int i = 0; i < all / top; ++i) cluster.devices.push_back(cluster.devices.back());
  return cluster;
}

Cluster with_memory(Cluster cluster, std::int64_t more) {
  for (Device& device : cluster.devices)
    if (device.memory_bytes > 0) device.memory_bytes = more < 0 ? 0 : device.memory_bytes + more;
  return cluster;
}

Cluster with_bandwidth(Cluster cluster, double times) {
  for (Level& level : cluster.levels) level.bandwidth *= times;
  for (Link& link : cluster.links) link.bandwidth *= times;
  return cluster;
}

// The plan of an alternative's shape, made once more: which of its stages is the slowest, and at what.
std::string held_up_by(const Profile& profile, const Cluster& cluster, PlanOptions options, const std::string& shape) {
  std::istringstream parts(shape);
  for (std::string part; std::getline(parts, part, '-');) {
    if (part.empty() || part.find_first_not_of("0123456789") != std::string::npos) return "";  // no shape
    options.shape.push_back(std::stoi(part));
  }
  options.fewer_devices = true;
  options.straight = false;
  options.max_stages = 0;
  try {
    const Plan plan = make_plan(profile, cluster, options);
    const StagePlan& stage = slowest_stage(plan);
    return fmt::format("; held up by the {} of stage {} ({})", longest(stage).name, stage.name, format_ms(longest(stage).ms));
  } catch (const Error&) {
    return "";
  }
}

std::string next_best(const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan) {
  const Alternative* best = nullptr;
  for (const Alternative& a : plan.alternatives)
    if (a.feasible && a.shape != plan.shape() && !a.shape.empty() && (best == nullptr || a.period_ms < best->period_ms)) best = &a;
  if (best == nullptr) return "next best: nothing else keeps the limits\n";
  std::string text = fmt::format("next best: {} ({}), {}", best->name, best->shape, format_ms(best->period_ms));
  const double ratio = plan.predicted.period_ms > 0 ? best->period_ms / plan.predicted.period_ms : 1;
  if (ratio > 1.0005) text += fmt::format(", {:.1f} % slower", 100 * (ratio - 1));
  else text += ratio < 0.9995 ? fmt::format(", {:.1f} % faster", 100 * (1 - ratio)) : ", as fast";
  if (is_original(options)) return text + "\n";  // its alternatives are no plans with stages
  text += held_up_by(profile, cluster, options, best->shape);
  if (plan.predicted.bytes_per_micro_batch > 0 && best->bytes_per_micro_batch != plan.predicted.bytes_per_micro_batch)
    text += best->bytes_per_micro_batch == 0
                ? "; nothing travels"
                : fmt::format("; it moves {:.2g}x the bytes", best->bytes_per_micro_batch / plan.predicted.bytes_per_micro_batch);
  return text + "\n";
}

std::string binding_limit(const Profile& profile, const Cluster& cluster, const PlanOptions& options, const Plan& plan) {
  const bool limited = std::any_of(cluster.devices.begin(), cluster.devices.end(), [](const Device& d) { return d.memory_bytes > 0; });
  if (limited) {
    const Plan free = make_plan(profile, with_memory(cluster, -1), options);
    if (free.predicted.period_ms < plan.predicted.period_ms * (1 - 1e-9)) {
      const auto fullest = std::max_element(plan.stages.begin(), plan.stages.end(), [](const StagePlan& a, const StagePlan& b) {
        return a.predicted.memory_bytes < b.predicted.memory_bytes;
      });
      return fmt::format("binding limit: memory (stage {} fills {}); without it {}, shape {}\n", fullest->name,
                         format_bytes(static_cast<double>(fullest->predicted.memory_bytes)), format_ms(free.predicted.period_ms), free.shape());
    }
  }
  const Plan fast = make_plan(profile, with_bandwidth(cluster, 1e9), options);
  if (fast.predicted.period_ms < plan.predicted.period_ms * (1 - 5e-4))
    return fmt::format("binding limit: the network; with free transfers {}, shape {}\n", format_ms(fast.predicted.period_ms), fast.shape());
  return "binding limit: compute; neither memory nor the network holds the plan back\n";
}

}  // namespace

std::string explain_plan(const Profile& profile, const Cluster& cluster, const PlanOptions& given, const Plan& plan) {
  PlanOptions options = given;
  options.alternatives = false;
  options.schedule = plan.schedule;
  options.micro_batches = plan.micro_batches;
  std::string text = bottleneck(plan, options);
  const auto& planned = planned_schedules();
  if (std::none_of(planned.begin(), planned.end(), [&](const auto& known) { return known.first == plan.schedule; }))
    return text + fmt::format("the schedule {} was simulated over the stages of 1f1b: what would help is not worked out for it\n", plan.schedule);
  text += binding_limit(profile, cluster, options, plan);
  text += "what would help:\n";
  if (cluster.links.empty()) {
    const Cluster more = with_one_more(cluster);
    const int added = more.num_devices() - cluster.num_devices();
    text += what_if(added == 1 ? "one more device" : fmt::format("one more group of {} devices", added), profile, more, options, plan);
  }
  if (std::any_of(cluster.devices.begin(), cluster.devices.end(), [](const Device& d) { return d.memory_bytes > 0; }))
    text += what_if("1 GiB more per device", profile, with_memory(cluster, std::int64_t{1} << 30), options, plan);
  text += what_if("twice the bandwidth", profile, with_bandwidth(cluster, 2), options, plan);
  text += next_best(profile, cluster, options, plan);
  return text;
}

}  // namespace pipedream
