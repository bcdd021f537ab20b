#include <algorithm>
#include <numeric>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// What one replica does, and the positions in it where its pairs of a forward and a backward begin.
struct ReplicaList {
  std::vector<Action> actions;
  std::vector<std::size_t> pairs;
};

// 1F1B-RR (SOSP'19, section 3.2): warm-up, then forward and backward in turn, never a flush, then drain. `replica` runs micro-batches replica,
// replica + replicas, ... After its last backward of a period a replica steps; one without a micro-batch in a period steps with the others.
// Late steps come before the first backward of the next period instead: a forward lies between, beside which the replicas' gradients are summed.
ReplicaList replica_list(const Schedule& schedule, int chunk, int replica, int warm_up, bool steps_late) {
  const int replicas = static_cast<int>(schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size());
  const int period = micro_batches_per_step(schedule, chunk), steps = num_steps(schedule, chunk), total = schedule.micro_batches;
  const int own = total > replica ? (total - replica + replicas - 1) / replicas : 0;
  ReplicaList result;
  int stepped = 0;
  const auto step_before = [&](int micro_batch) {  // steps whose micro-batches all come before this one
    for (; stepped < steps && (stepped == steps - 1 ? total : (stepped + 1) * period) <= micro_batch; ++stepped)
      result.actions.push_back({ActionKind::Step, chunk, std::min((stepped + 1) * period, total) - 1});
  };
  for (int i = 0; i < std::min(warm_up, own); ++i) result.actions.push_back({ActionKind::Forward, chunk, replica + i * replicas});
  for (int i = 0; i < own; ++i) {
    const int micro_batch = replica + i * replicas;
    if (!steps_late) step_before(micro_batch);
    if (i + warm_up < own) {
      result.pairs.push_back(result.actions.size());
      result.actions.push_back({ActionKind::Forward, chunk, micro_batch + warm_up * replicas});
    }
    if (steps_late) step_before(micro_batch);
    result.actions.push_back({ActionKind::Backward, chunk, micro_batch});
    if (!steps_late) step_before(i + 1 < own ? micro_batch + replicas : total);
  }
  step_before(total);
  return result;
}

// Forwards before the first backward: as many micro-batches as have ranks behind them, shared by the replicas (methods.md 4.0). Extra ones hide
// transfers, of which there are fewer towards the end of the pipe, so they taper off: all of them at its start, none at its end.
std::vector<int> warm_ups(const Schedule& schedule, int extra) {
  const std::vector<int> downstream = ranks_downstream(schedule);
  std::vector<int> behind;  // ranks behind a chunk
  for (std::size_t chunk = 0; chunk < downstream.size(); ++chunk)
    behind.push_back(downstream[chunk] - static_cast<int>(schedule.chunk_ranks[chunk].size()));
  const std::int64_t most = std::max(1, *std::max_element(behind.begin(), behind.end()));
  std::vector<int> result;
  for (std::size_t chunk = 0; chunk < downstream.size(); ++chunk) {
    const std::int64_t more = (static_cast<std::int64_t>(extra) * behind[chunk] + most - 1) / most;
    const std::int64_t in_flight = std::min<std::int64_t>(downstream[chunk] - 1 + more, schedule.micro_batches);
    result.push_back(static_cast<int>(in_flight / static_cast<std::int64_t>(schedule.chunk_ranks[chunk].size())));
  }
  return result;
}

// Micro-batches after which all replicas and steps are at their place again.
int turn(const Schedule& schedule) {
  int result = 1;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    result = std::lcm(result, static_cast<int>(schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size()));
    result = std::lcm(result, micro_batches_per_step(schedule, chunk));
  }
  return result;
}

}  // namespace

Schedule generate_1f1b_async(const ScheduleRequest& request) {
  Schedule schedule = empty_schedule(request);
  if (request.overlap_reductions && request.policy.find("vertical-sync") != std::string::npos)
    throw UsageError("with vertical-sync a stage's weights are asked for as soon as they can be there: its steps cannot come later",
                     "leave out --overlap-reductions, or use policy stash or 2bw");
  const auto steps_late = [&](int chunk) {
    return request.overlap_reductions && schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size() > 1 && !replicas_step_alone(schedule);
  };
  const std::vector<int> warm_up = warm_ups(schedule, request.extra_in_flight);
  const int body = turn(schedule);
  int longest = 0;  // micro-batches in warm-up
  for (std::size_t chunk = 0; chunk < warm_up.size(); ++chunk)
    longest = std::max(longest, warm_up[chunk] * static_cast<int>(schedule.chunk_ranks[chunk].size()));
  // A pass long enough to show three repetitions; `more` are put in between.
  const int shortest = (longest + body - 1) / body * body + 3 * body;
  const int more = schedule.micro_batches > shortest + body ? (schedule.micro_batches - shortest) / body : 0;
  schedule.micro_batches -= more * body;

  ActionLists lists(schedule.ranks.size());
  std::vector<std::vector<std::size_t>> marks(schedule.ranks.size());
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    const int replicas = static_cast<int>(ranks.size());
    for (int replica = 0; replica < replicas; ++replica) {
      ReplicaList list = replica_list(schedule, chunk, replica, warm_up[static_cast<std::size_t>(chunk)], steps_late(chunk));
      const auto rank = static_cast<std::size_t>(ranks[static_cast<std::size_t>(replica)]);
      if (!lists[rank].empty()) throw UsageError("1f1b-async keeps one chunk per rank", "use wpipe or interleaved for several chunks per rank");
      if (more > 0)
        for (int k = 0; k <= 3; ++k) {
          const auto pair = static_cast<std::size_t>(k * body / replicas);
          marks[rank].push_back(pair < list.pairs.size() ? list.pairs[pair] : list.actions.size());
        }
      lists[rank] = std::move(list.actions);
    }
    schedule.chunk_body_versions.push_back(body / micro_batches_per_step(schedule, chunk));
  }
  schedule.body_micro_batches = body;
  schedule.body_versions = schedule.chunk_body_versions.front();
  if (std::all_of(schedule.chunk_body_versions.begin(), schedule.chunk_body_versions.end(), [&](int n) { return n == schedule.body_versions; }))
    schedule.chunk_body_versions.clear();
  if (more > 0 && fold(schedule, lists, marks, more)) return schedule;

  schedule.body_micro_batches = schedule.body_versions = 0;
  schedule.chunk_body_versions.clear();
  schedule.micro_batches += more * body;
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    for (std::size_t replica = 0; replica < ranks.size(); ++replica)
      schedule.ranks[static_cast<std::size_t>(ranks[replica])].prologue =
          replica_list(schedule, chunk, static_cast<int>(replica), warm_up[static_cast<std::size_t>(chunk)], steps_late(chunk)).actions;
  }
  return schedule;
}

}  // namespace pipedream
