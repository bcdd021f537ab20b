#include "pipedream/schedule/generate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generators.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/policy.hpp"
#include "pipedream/schedule/validate.hpp"

namespace pipedream {
namespace {

struct Entry {
  const char* name;
  const char* default_policy;  ///< the only one possible where it is "flush"
  Schedule (*generate)(const ScheduleRequest&);
  Placement placement;
  int chunks_per_rank;
  const char* summary;
};

// Every schedule: one line here, one file beside.
constexpr std::array kEntries{
    Entry{"1f1b-async", "stash", generate_1f1b_async, Placement::Chain, 1,
          "PipeDream: one forward and one backward in turn, never flushes, any replicas"},
    Entry{"gpipe", "flush", generate_gpipe, Placement::Chain, 1, "all forwards, then all backwards (with slices: TeraPipe)"},
    Entry{"1f1b", "flush", generate_1f1b, Placement::Chain, 1, "one forward and one backward in turn, flushes at every step; on graphs by depth"},
    Entry{"interleaved", "flush", generate_interleaved, Placement::Loop, 2, "1F1B with several chunks per rank: a smaller bubble for more transfers"},
    Entry{"looped-bfs", "flush", generate_looped_bfs, Placement::Loop, 2, "several chunks per rank, breadth first"},
    Entry{"zb-h1", "flush", generate_zero_bubble_h1, Placement::Chain, 1, "backward in two parts: a third of 1F1B's bubble in its memory"},
    Entry{"zb-h2", "flush", generate_zero_bubble_h2, Placement::Chain, 1, "the same with twice the memory: no bubble within a rank"},
    Entry{"zb-auto", "flush", generate_zero_bubble_auto, Placement::Chain, 1,
          "backward in two parts, searched for under a memory limit and uneven costs"},
    Entry{"zb-v", "flush", generate_zero_bubble_v, Placement::Vee, 2, "two chunks per rank in a V: no bubble in 1F1B's memory where times are equal"},
    Entry{"v-half", "flush", generate_v_half, Placement::Vee, 2, "the V in half of 1F1B's memory, for nearly equal times"},
    Entry{"v-min", "flush", generate_v_min, Placement::Vee, 2, "the V in a third of 1F1B's memory, for nearly equal times"},
    Entry{"dualpipe", "flush", generate_dual_pipe, Placement::Mirror, 1, "two opposite pipes, a forward beside a backward; two copies of the model"},
    Entry{"dualpipe-v", "flush", generate_dual_pipe_v, Placement::Vee, 2, "the same cut in half: one copy of the model"},
    Entry{"chimera", "flush", generate_chimera, Placement::Mirror, 1, "two opposite pipes, two copies of the model"},
    Entry{"seq1f1b", "flush", generate_seq_1f1b, Placement::Chain, 1, "1F1B over slices of a sequence"},
    Entry{"wpipe", "2bw/flush", generate_wpipe, Placement::Loop, 2, "two chunks per rank, never flushes: half of the model one step late, half not"},
    Entry{"model-parallel", "flush", generate_model_parallel, Placement::Chain, 1, "one micro-batch in flight"},
    Entry{"data-parallel", "flush", generate_data_parallel, Placement::Whole, 1, "the whole model on every rank"},
    Entry{"asp", "stash", generate_asp, Placement::Whole, 1, "asynchronous data parallel: ranks step without waiting for each other"},
};

const Entry& find_entry(const std::string& name) {
  std::vector<std::string_view> names;
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry;
    names.emplace_back(entry.name);
  }
  throw UsageError(fmt::format("unknown schedule '{}'", name.substr(0, 40)), fmt::format("schedules are {}", fmt::join(names, ", ")));
}

ScheduleInfo info_of(const Entry& entry) { return {entry.name, entry.summary, entry.default_policy, entry.placement, entry.chunks_per_rank}; }

void check_policy(const Schedule& schedule, const Entry& entry) {
  if (entry.default_policy == std::string_view("2bw/flush")) {
    if (schedule.policy != entry.default_policy && schedule.policy != "stash")
      throw UsageError(fmt::format("{} runs with policy 2bw/flush or stash", entry.name));
    return;
  }
  if (replicas_step_alone(schedule)) {
    if (schedule.policy != entry.default_policy)
      throw UsageError(
          fmt::format("{} knows no policy but {}: a rank's backward reads the weights that its forward read", entry.name, entry.default_policy));
    return;
  }
  if (std::string_view(entry.default_policy) != "flush") {
    for (const VersionPolicy policy : chunk_policies(schedule))
      if (policy == VersionPolicy::Flush)
        throw UsageError(fmt::format("{} never flushes: policy flush is not possible", entry.name),
                         "use 1f1b, or policy stash, vertical-sync, 2bw or predict");
    return;
  }
  for (const VersionPolicy policy : chunk_policies(schedule))
    if (policy != VersionPolicy::Flush && policy != VersionPolicy::Stash)
      throw UsageError(fmt::format("{} flushes at every step: policy {} has no meaning", entry.name, name_of(policy)),
                       "leave the policy out, or use 1f1b-async");
}

}  // namespace

Schedule generate(const ScheduleRequest& request) {
  const Entry& entry = find_entry(request.name);
  ScheduleRequest full = request;
  if (full.policy.empty()) full.policy = entry.default_policy;
  Schedule schedule = entry.generate(full);
  check_policy(schedule, entry);
  return schedule;
}

Schedule make_schedule(const ScheduleRequest& request) {
  Schedule schedule = lower(generate(request), {request.recompute, request.overlap_reductions, request.group_transfers, request.receive_buffers});
  ValidationOptions options;
  options.require_transfers = options.require_versions = true;
  options.posted_receives = request.receive_buffers > 0;  // a receive ahead of its time would hold its rank for ever
  validate(schedule, options);
  return schedule;
}

std::vector<ScheduleInfo> list_schedules() {
  std::vector<ScheduleInfo> result;
  for (const Entry& entry : kEntries) result.push_back(info_of(entry));
  return result;
}

ScheduleInfo find_schedule(const std::string& name) { return info_of(find_entry(name)); }

}  // namespace pipedream
