#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/generators.hpp"

namespace pipedream {
namespace {

// Chunks count versions as long as ids fit in 32 bits with room to add; the largest pass that is sensible is far below.
constexpr std::int64_t kMostWork = 1'000'000'000;

void check_ranks(const ScheduleRequest& request) {
  if (request.chunk_ranks.empty()) throw UsageError("a schedule needs at least one chunk");
  std::set<int> all;
  for (const auto& ranks : request.chunk_ranks) {
    if (ranks.empty()) throw UsageError("every chunk needs at least one rank");
    if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) throw UsageError("a chunk has two replicas on one rank");
    all.insert(ranks.begin(), ranks.end());
  }
  if (*all.begin() != 0 || *all.rbegin() != static_cast<int>(all.size()) - 1) throw UsageError("ranks must be numbered from 0 without gaps");
}

void check_counts(const ScheduleRequest& request) {
  const auto positive = [](int value, const char* what) {
    if (value < 1) throw UsageError(fmt::format("{} must be at least 1: {}", what, value));
  };
  positive(request.micro_batches, "the number of micro-batches");
  positive(request.step_micro_batches, "the number of micro-batches per step");
  positive(request.slices, "the number of slices");
  if (request.extra_in_flight < 0) throw UsageError(fmt::format("extra micro-batches in flight must not be negative: {}", request.extra_in_flight));
  if (static_cast<std::int64_t>(request.micro_batches) * request.slices > kMostWork / static_cast<std::int64_t>(request.chunk_ranks.size()))
    throw UsageError(fmt::format("{} micro-batches of {} slices on {} chunks are more than one pass can hold", request.micro_batches, request.slices,
                                 request.chunk_ranks.size()),
                     "make the pass shorter");
}

void add_steps(const Schedule& schedule, int first, int count, ActionLists& lists) {
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    auto& list = lists[static_cast<std::size_t>(rank)];
    const std::vector<int> chunks = chunks_of(schedule, rank);
    const auto step = [&](int chunk) { return Action{ActionKind::Step, chunk, first + count - 1}; };
    const bool wait_for_others =
        std::any_of(chunks.begin(), chunks.end(), [&](int chunk) { return schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size() > 1; });
    if (wait_for_others) {
      for (const int chunk : chunks) list.push_back(step(chunk));
      continue;
    }
    std::vector<std::pair<std::size_t, int>> places;  // after which action, chunk
    for (const int chunk : chunks) {
      std::size_t place = list.size();
      while (place > 0 && !(list[place - 1].chunk == chunk && is_backward(list[place - 1].kind))) --place;
      places.emplace_back(place == 0 ? list.size() : place, chunk);
    }
    std::sort(places.rbegin(), places.rend());
    for (const auto& [place, chunk] : places) {
      if (place > 0 && list[place - 1].joined) list.insert(list.begin() + static_cast<std::ptrdiff_t>(place) + 1, step(chunk));
      else list.insert(list.begin() + static_cast<std::ptrdiff_t>(place), step(chunk));
    }
  }
}

}  // namespace

Schedule empty_schedule(const ScheduleRequest& request) {
  check_ranks(request);
  check_counts(request);
  Schedule schedule;
  schedule.name = request.name;
  schedule.policy = request.policy;
  schedule.chunk_ranks = request.chunk_ranks;
  schedule.edges = request.edges.empty() ? chain_edges(static_cast<int>(request.chunk_ranks.size())) : request.edges;
  std::sort(schedule.edges.begin(), schedule.edges.end());
  int ranks = 0;
  for (const auto& replicas : request.chunk_ranks) ranks = std::max(ranks, *std::max_element(replicas.begin(), replicas.end()) + 1);
  schedule.ranks.resize(static_cast<std::size_t>(ranks));
  schedule.micro_batches = request.micro_batches;
  schedule.step_micro_batches = request.step_micro_batches;
  schedule.slices = request.slices;
  static_cast<void>(chunk_graph(schedule));  // refuses edges that make no sense
  return schedule;
}

std::vector<int> own_micro_batches(const Schedule& schedule, int chunk, int rank, int first, int count) {
  const auto& ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
  const int replicas = static_cast<int>(ranks.size());
  const int replica = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  std::vector<int> own;
  if (replica == replicas) return own;
  const int skip = ((replica - first) % replicas + replicas) % replicas;
  for (int micro_batch = first + skip; micro_batch < first + count; micro_batch += replicas) own.push_back(micro_batch);
  return own;
}

Schedule flushing_schedule(const ScheduleRequest& request, const MiniBatchGenerator& generator) {
  Schedule schedule = empty_schedule(request);
  int turn = 1;  // micro-batches until every replica is at its place again
  for (const auto& ranks : schedule.chunk_ranks) turn = std::lcm(turn, static_cast<int>(ranks.size()));
  const int step = schedule.step_micro_batches;
  const int steps_per_body = turn / std::gcd(turn, step);
  schedule.body_micro_batches = step * steps_per_body;
  schedule.body_versions = steps_per_body;
  schedule.repeats = schedule.micro_batches / schedule.body_micro_batches;
  const auto append = [&](std::vector<Action> RankProgram::*part, int first, int count) {
    ActionLists lists = generator(schedule, first, count);
    add_steps(schedule, first, count, lists);
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      auto& target = schedule.ranks[rank].*part;
      target.insert(target.end(), lists[rank].begin(), lists[rank].end());
    }
  };
  if (schedule.repeats > 0)
    for (int k = 0; k < steps_per_body; ++k) append(&RankProgram::body, k * step, step);
  for (int first = schedule.repeats * schedule.body_micro_batches; first < schedule.micro_batches; first += step)
    append(&RankProgram::epilogue, first, std::min(step, schedule.micro_batches - first));
  if (schedule.repeats == 0) schedule.body_micro_batches = schedule.body_versions = 0;
  return schedule;
}

}  // namespace pipedream
