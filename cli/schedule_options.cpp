#include "cli/schedule_options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <numeric>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/schedule/csv.hpp"
#include "pipedream/schedule/validate.hpp"

namespace pipedream::cli {
namespace {

constexpr int kStepsOfEndless = 4;  // shows a steady state where a schedule steps but never flushes

std::vector<int> parse_stages(const std::string& text) {
  std::vector<int> replicas;
  std::string_view rest = text;
  while (true) {
    int count = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), count);
    if (error != std::errc() || count < 1 || count > 4096)
      throw UsageError(fmt::format("--stages must be replicas per stage: {}", text), "for example --stages 2-1-1");
    replicas.push_back(count);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) return replicas;
    if (rest.front() != '-') throw UsageError(fmt::format("--stages must be replicas per stage: {}", text), "for example --stages 2-1-1");
    rest.remove_prefix(1);
  }
}

std::vector<int> replicas_of(const ScheduleOptions& options) {
  if (!options.stages.empty()) return parse_stages(options.stages);
  if (options.ranks < 1) throw UsageError("how many ranks?", "give --ranks N, --stages 2-1-1, or a plan");
  return std::vector<int>(static_cast<std::size_t>(options.ranks), 1);
}

// "12" micro-batches of a whole rank, "1.5x" times the ranks, which is what 1F1B holds at the first rank.
double parse_memory_limit(const std::string& text, int ranks) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error != std::errc() || !(value > 0) || (unit != "" && unit != "x"))
    throw UsageError(fmt::format("--memory-limit must be a number of micro-batches, or a factor like 1.5x: {}", text));
  return unit == "x" ? value * ranks : value;
}

bool steps_without_flush(const ScheduleRequest& request) {
  return request.name == "wpipe" || (request.name == "1f1b-async" && request.policy.find("2bw") != std::string::npos);
}

// --costs are of a rank's whole share of the model, so that schedules compare; its chunks share them.
SimulationOptions unit_costs(const ScheduleOptions& options, const Schedule& schedule) {
  SimulationOptions result;
  const int per_rank = static_cast<int>(chunks_of(schedule, 0).size());
  const bool two_copies = schedule.name == "chimera" || schedule.name == "dualpipe";  // a rank holds two stages, each for half of the micro-batches
  const bool whole_model = schedule.name == "data-parallel" || replicas_step_alone(schedule);  // every rank runs all of it
  const double share = whole_model ? schedule.num_ranks() : two_copies ? 1 : 1.0 / std::max(1, per_rank);
  ChunkCosts costs;
  if (!options.costs.empty()) costs = {options.costs[0], options.costs[1], options.costs[2]};
  costs.forward_ms *= share;
  costs.backward_input_ms *= share;
  costs.backward_weight_ms *= share;
  costs.activation_bytes = share;
  result.chunks = {costs};
  result.links.latency_ms = options.costs.size() > 3 ? options.costs[3] : 0;
  return result;
}

Cluster cluster_of(const ScheduleOptions& options, int ranks) {
  if (!options.cluster_file.empty()) return load_cluster(options.cluster_file);
  const double bandwidth = options.bandwidth.empty() ? 1e15 : parse_bandwidth(options.bandwidth);
  return make_cluster({ranks}, {bandwidth}, {options.latency.empty() ? 0 : parse_duration_ms(options.latency)}, 0);
}

TimedSchedule from_plan(const ScheduleOptions& options) {
  const Plan plan = load_plan(options.plan_file);
  if (options.profile_file.empty()) throw UsageError("a plan is simulated with the profile it was made from", "give --profile FILE");
  const Profile profile = load_profile(options.profile_file);
  const int in_flight = 4 * plan.num_ranks();
  const int steps = options.steps > 0 ? options.steps : std::max(kStepsOfEndless, 4 * in_flight / std::max(1, plan.micro_batches));
  const int micro_batches = options.micro_batches > 0 ? options.micro_batches : steps * plan.micro_batches;
  return {schedule_of(plan, profile, micro_batches), simulation_options(plan, profile, cluster_of(options, plan.num_ranks())), true};
}

}  // namespace

void add_options(CLI::App& command, ScheduleOptions& options) {
  command.add_option("PLAN", options.plan_file, "plan file; needs --profile");
  command.add_option("--profile", options.profile_file, "profile the plan was made from");
  command.add_option("--check", options.check_file, "schedule file (CSV, ours or PyTorch's)");
  command.add_option("--schedule", options.schedule, "name of a schedule (pipedream list schedules)");
  command.add_option("--policy", options.policy, "weight versions (pipedream list policies)");
  command.add_option("--ranks", options.ranks, "ranks along the pipe")->check(CLI::Range(1, 4096));
  command.add_option("--stages", options.stages, "replicas per stage, 2-1-1");
  command.add_option("--micro-batches", options.micro_batches, "per optimizer step; of the pass where every micro-batch steps")
      ->check(CLI::Range(1, 1 << 24));
  command.add_option("--steps", options.steps, "optimizer steps (default 1, 4 if never flushed)")->check(CLI::Range(1, 1 << 24));
  command.add_option("--chunks", options.chunks, "chunks per rank")->check(CLI::Range(1, 1024));
  command.add_option("--slices", options.slices, "slices per micro-batch")->check(CLI::Range(1, 1024));
  command.add_option("--in-flight", options.extra_in_flight, "micro-batches in flight beyond the fewest")->check(CLI::Range(0, 1 << 20));
  command.add_option("--costs", options.costs, "F,B,W[,C] ms of forward, input and weight part, hop")
      ->delimiter(',')
      ->expected(3, 4)
      ->check(CLI::NonNegativeNumber);
  command.add_option("--memory-limit", options.memory_limit, "activations per rank: 12, or 1.5x of 1F1B's");
  command.add_option("--cluster", options.cluster_file, "cluster file (TOML)");
  command.add_option("--bandwidth", options.bandwidth, "of every link, 10Gbit/s");
  command.add_option("--latency", options.latency, "of every link, 50us");
  command.add_option("--jitter", options.jitter, "computation takes 1 +- this of its time")->check(CLI::Range(0.0, 1.0));
  command.add_option("--seed", options.seed, "of the jitter");
}

ScheduleRequest request_of(const ScheduleOptions& options, const std::string& name) {
  ScheduleRequest request;
  request.name = !name.empty() ? name : options.schedule;
  if (request.name.empty()) throw UsageError("which schedule?", "give --schedule NAME, a plan, or --check FILE.csv");
  const ScheduleInfo info = find_schedule(request.name);
  request.policy = options.policy.empty() ? info.default_policy : options.policy;
  const std::vector<int> replicas = replicas_of(options);
  request.chunk_ranks = place_chunks(info.placement, options.chunks > 0 ? options.chunks : info.chunks_per_rank, replicas);
  if (options.micro_batches < 1) throw UsageError("how many micro-batches?", "give --micro-batches N");
  const int steps = options.steps > 0 ? options.steps : steps_without_flush(request) ? kStepsOfEndless : 1;
  const bool every_micro_batch_steps = (request.name == "1f1b-async" || request.name == "asp") && !steps_without_flush(request);
  request.step_micro_batches = every_micro_batch_steps ? 1 : options.micro_batches;
  if (static_cast<std::int64_t>(options.micro_batches) * steps > 1 << 28)
    throw UsageError("that many micro-batches are more than one pass can hold", "lower --steps");
  request.micro_batches = options.micro_batches * steps;
  request.slices = options.slices;
  request.extra_in_flight = options.extra_in_flight;
  const int ranks = std::accumulate(replicas.begin(), replicas.end(), 0);
  if (!options.costs.empty()) request.costs = {options.costs[0], options.costs[1], options.costs[2], options.costs.size() > 3 ? options.costs[3] : 0};
  if (!options.memory_limit.empty()) request.memory_limit = parse_memory_limit(options.memory_limit, ranks);
  return request;
}

TimedSchedule timed_schedule(const ScheduleOptions& options, const std::string& name) {
  TimedSchedule result;
  if (!options.plan_file.empty()) {
    result = from_plan(options);
  } else {
    if (!options.check_file.empty()) {
      result.schedule = schedule_from_csv(read_file(options.check_file), options.check_file);
      validate(result.schedule);
    } else {
      result.schedule = make_schedule(request_of(options, name));
    }
    result.costs = unit_costs(options, result.schedule);
    result.has_costs = !options.costs.empty();
    if (!options.cluster_file.empty() || !options.bandwidth.empty() || !options.latency.empty())
      result.costs.links = {0, 0, cluster_of(options, result.schedule.num_ranks())};
  }
  result.costs.jitter = options.jitter;
  result.costs.seed = options.seed;
  return result;
}

}  // namespace pipedream::cli
