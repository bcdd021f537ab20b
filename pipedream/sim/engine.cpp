#include "pipedream/sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

std::vector<ChunkCosts> costs_per_chunk(const Schedule& schedule, const SimulationOptions& options) {
  if (options.chunks.empty()) return std::vector<ChunkCosts>(static_cast<std::size_t>(schedule.num_chunks()));
  if (options.chunks.size() == 1) return std::vector<ChunkCosts>(static_cast<std::size_t>(schedule.num_chunks()), options.chunks.front());
  if (options.chunks.size() != static_cast<std::size_t>(schedule.num_chunks()))
    throw UsageError(fmt::format("costs of {} chunks for a schedule of {}", options.chunks.size(), schedule.num_chunks()),
                     "give one for all or one per chunk");
  return options.chunks;
}

}  // namespace

Engine::Engine(const Schedule& schedule, const SimulationOptions& options)
    : schedule_(schedule),
      options_(options),
      lists_(action_lists(schedule)),
      graph_(chunk_graph(schedule)),
      index_(schedule),
      links_(options.links, schedule.num_ranks()),
      ranks_(lists_.size()),
      figures_(lists_.size()),
      forward_(index_.size),
      backward_(index_.size),
      reductions_(static_cast<std::size_t>(schedule.num_chunks())),
      entry_ms_(static_cast<std::size_t>(schedule.micro_batches), 0),
      costs_(costs_per_chunk(schedule, options)) {
  if (!options.edge_bytes.empty() && options.edge_bytes.size() != schedule.edges.size())
    throw UsageError("bytes must be given for every edge of the schedule");
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    const auto c = static_cast<std::size_t>(chunk);
    for (std::size_t work = index_(chunk, 0, 0); work < index_(chunk, 0, 0) + index_.micro_batches * index_.slices; ++work) {
      forward_[work].missing = static_cast<std::int32_t>(graph_.predecessors[c].size());
      backward_[work].missing = static_cast<std::int32_t>(graph_.successors[c].size());
    }
    reductions_[c].resize(schedule.chunk_ranks[c].size() > 1 ? static_cast<std::size_t>(num_steps(schedule, chunk)) : 0);
    bytes_to_.emplace_back();
    for (const int target : graph_.successors[c]) {
      const auto edge = std::lower_bound(schedule.edges.begin(), schedule.edges.end(), std::pair{chunk, target}) - schedule.edges.begin();
      bytes_to_.back().push_back(options.edge_bytes.empty() ? 0 : options.edge_bytes[static_cast<std::size_t>(edge)] / schedule.slices);
    }
  }
  for (auto& made : made_by_) made.assign(options.keep_trace ? index_.size : 0, kNobody);
  std::size_t total = 0;
  for (const auto& list : lists_) {
    total += list.size();
    has_transfers_ = has_transfers_ || std::any_of(list.begin(), list.end(), [](const Action& a) { return is_transfer(a.kind); });
  }
  if (options.keep_trace) {
    trace_.reserve(total);
    critical_.reserve(total);
  }
}

SimulationResult Engine::run() {
  for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) go_on(rank);
  while (!events_.empty()) {
    const int rank = events_.top().rank;
    events_.pop();
    finish(rank);
    go_on(rank);
  }
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].next < lists_[rank].size()) fail_stuck();
  SimulationResult result;
  finish_figures(result);
  return result;
}

// Everything that takes the rank no time, up to the next computation, which is begun if its inputs are known.
void Engine::go_on(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  Rank& state = ranks_[r];
  const auto& list = lists_[r];
  while (state.next < list.size()) {
    const Action& action = list[state.next];
    if (is_send(action.kind)) {
      send(rank, action, state.clock_ms);
    } else if (action.kind == ActionKind::Reduce) {
      reduce(rank, action);
    } else if (!(is_receive(action.kind) || action.kind == ActionKind::Drop || action.kind == ActionKind::Predict)) {
      state.blocked = !begin(rank);
      return;
    }
    ++state.next;
  }
}

Engine::Inputs* Engine::inputs_of(const Action& action) {
  if (action.kind == ActionKind::Forward) return &forward_[index_(action.chunk, action.micro_batch, action.slice)];
  if (gives_gradient(action.kind)) return &backward_[index_(action.chunk, action.micro_batch, action.slice)];
  return nullptr;
}

Engine::Reduction& Engine::reduction_of(const Action& action) {
  return reductions_[static_cast<std::size_t>(action.chunk)]
                    [static_cast<std::size_t>(action.micro_batch / micro_batches_per_step(schedule_, action.chunk))];
}

// A unit is one computation, or joined ones, which await all their inputs before and give all their outputs after.
bool Engine::begin(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  Rank& state = ranks_[r];
  const auto& list = lists_[r];
  std::size_t end = state.next + 1;
  while (list[end - 1].joined && end < list.size()) ++end;
  double start = state.clock_ms, duration = 0;
  std::int32_t critical = state.last_trace;
  Cause cause = Cause::None;
  for (std::size_t i = state.next; i < end; ++i) {
    const Action& action = list[i];
    if (const Inputs* inputs = inputs_of(action)) {
      if (inputs->missing > 0) return false;
      if (inputs->ready_ms > start) {
        start = inputs->ready_ms;
        critical = inputs->from;
        cause = action.kind == ActionKind::Forward ? Cause::Activation : Cause::Gradient;
      }
    } else if ((action.kind == ActionKind::Step || action.kind == ActionKind::Wait) && !reductions_[static_cast<std::size_t>(action.chunk)].empty() &&
               !replicas_step_alone(schedule_)) {
      const Reduction& reduction = reduction_of(action);
      if (reduction.arrived > 0 && !reduction.done) return false;
      if (reduction.ready_ms > start) {
        start = reduction.ready_ms;
        cause = Cause::Reduction;
      }
    }
    duration += duration_ms(rank, action);
  }
  if (end - state.next > 1 && options_.pair_ms) duration = *options_.pair_ms * (options_.rank_factor.empty() ? 1 : options_.rank_factor[r]);
  if (state.first_start_ms < 0 && duration > 0) state.first_start_ms = start;
  else if (cause == Cause::Activation) figures_[r].wait_activation_ms += start - state.clock_ms;
  else if (cause == Cause::Gradient) figures_[r].wait_gradient_ms += start - state.clock_ms;
  else if (cause == Cause::Reduction) figures_[r].wait_reduction_ms += start - state.clock_ms;
  figures_[r].busy_ms += duration;
  if (options_.keep_trace) {
    for (std::size_t i = state.next; i < end; ++i)
      record(rank, list[i], start, start + duration, i == state.next ? critical : static_cast<std::int32_t>(trace_.size()) - 1);
    state.last_trace = static_cast<std::int32_t>(trace_.size()) - 1;
  }
  for (std::size_t i = state.next; i < end; ++i)
    if (list[i].kind == ActionKind::Forward && list[i].chunk == 0 && list[i].slice == 0)
      entry_ms_[static_cast<std::size_t>(list[i].micro_batch)] = start;
  state.start_ms = start;
  state.clock_ms = start + duration;
  state.unit_end = end;
  events_.push({state.clock_ms, rank});
  return true;
}

void Engine::finish(int rank) {
  const auto r = static_cast<std::size_t>(rank);
  Rank& state = ranks_[r];
  if (state.clock_ms > state.start_ms) state.last_end_ms = state.clock_ms;
  std::int32_t entry = state.last_trace - static_cast<std::int32_t>(state.unit_end - state.next) + 1;
  for (; state.next < state.unit_end; ++state.next, ++entry) {
    const Action& action = lists_[r][state.next];
    const bool forward = action.kind == ActionKind::Forward;
    if (!forward && !gives_gradient(action.kind)) continue;
    if (options_.keep_trace) made_by_[forward ? 0 : 1][index_(action.chunk, action.micro_batch, action.slice)] = entry;
    hand_over(rank, action, state.clock_ms);
  }
}

// To chunks on the same rank directly; to others here only if the schedule has no transfers of its own.
void Engine::hand_over(int rank, const Action& action, double now_ms) {
  const bool gradient = action.kind != ActionKind::Forward;
  const auto& others = (gradient ? graph_.predecessors : graph_.successors)[static_cast<std::size_t>(action.chunk)];
  for (const int other : others) {
    if (schedule_.rank_of(other, action.micro_batch) == rank) deliver(action, other, gradient, now_ms);
    else if (!has_transfers_)
      send(rank,
           {gradient ? ActionKind::SendGradient : ActionKind::SendActivation, action.chunk, action.micro_batch, action.slice, Action::kNone, other},
           now_ms);
  }
}

double Engine::edge_bytes(int source, int target) const {
  const auto& targets = graph_.successors[static_cast<std::size_t>(source)];
  return bytes_to_[static_cast<std::size_t>(source)]
                  [static_cast<std::size_t>(std::lower_bound(targets.begin(), targets.end(), target) - targets.begin())];
}

void Engine::send(int rank, const Action& action, double now_ms) {
  const bool gradient = action.kind == ActionKind::SendGradient;
  const double bytes = gradient ? edge_bytes(action.peer, action.chunk) : edge_bytes(action.chunk, action.peer);
  const auto booking = links_.send(rank, schedule_.rank_of(action.peer, action.micro_batch), bytes, now_ms);
  if (options_.keep_trace && has_transfers_)
    record(rank, action, booking.start_ms, booking.arrival_ms, ranks_[static_cast<std::size_t>(rank)].last_trace);
  deliver(action, action.peer, gradient, booking.arrival_ms);
}

void Engine::deliver(const Action& action, int other, bool gradient, double arrival_ms) {
  Inputs& inputs = (gradient ? backward_ : forward_)[index_(other, action.micro_batch, action.slice)];
  if (inputs.from == kNobody || arrival_ms >= inputs.ready_ms) {
    inputs.ready_ms = arrival_ms;
    if (options_.keep_trace) inputs.from = made_by_[gradient ? 1 : 0][index_(action.chunk, action.micro_batch, action.slice)];
  }
  if (--inputs.missing > 0) return;
  const int rank = schedule_.rank_of(other, action.micro_batch);
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  if (state.blocked) state.blocked = !begin(rank);
}

void Engine::reduce(int rank, const Action& action) {
  const auto& ranks = schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)];
  if (ranks.size() < 2) return;
  if (replicas_step_alone(schedule_)) return exchange(rank, action);
  Reduction& reduction = reduction_of(action);
  const double now = ranks_[static_cast<std::size_t>(rank)].clock_ms;
  reduction.ready_ms = std::max(reduction.ready_ms, now);
  if (++reduction.arrived < static_cast<int>(ranks.size())) return;
  const double begun = reduction.ready_ms;
  reduction.ready_ms += links_.reduce_ms(ranks, static_cast<double>(costs_[static_cast<std::size_t>(action.chunk)].reduce_bytes));
  reduction.done = true;
  for (const int other : ranks) {
    if (options_.keep_trace) record(other, action, begun, reduction.ready_ms, ranks_[static_cast<std::size_t>(rank)].last_trace);
    Rank& state = ranks_[static_cast<std::size_t>(other)];
    if (other != rank && state.blocked) state.blocked = !begin(other);
  }
}

// One exchange of gradients for weights is under way beside what the rank computes; the next one waits for it.
void Engine::exchange(int rank, const Action& action) {
  Rank& state = ranks_[static_cast<std::size_t>(rank)];
  figures_[static_cast<std::size_t>(rank)].wait_reduction_ms += std::max(0.0, state.exchanged_ms - state.clock_ms);
  state.clock_ms = std::max(state.clock_ms, state.exchanged_ms);
  state.exchanged_ms = state.clock_ms + links_.reduce_ms(schedule_.chunk_ranks[static_cast<std::size_t>(action.chunk)],
                                                         static_cast<double>(costs_[static_cast<std::size_t>(action.chunk)].reduce_bytes));
  if (options_.keep_trace) record(rank, action, state.clock_ms, state.exchanged_ms, state.last_trace);
}

double Engine::duration_ms(int rank, const Action& action) const {
  const ChunkCosts& costs = costs_[static_cast<std::size_t>(action.chunk)];
  double ms = 0;
  switch (action.kind) {
    case ActionKind::Forward:
    case ActionKind::Recompute:
      ms = costs.forward_ms;
      break;
    case ActionKind::Backward:
      ms = costs.backward_input_ms + costs.backward_weight_ms;
      break;
    case ActionKind::BackwardInput:
      ms = costs.backward_input_ms;
      break;
    case ActionKind::BackwardWeight:
      ms = costs.backward_weight_ms;
      break;
    case ActionKind::Step:
      ms = costs.update_ms;
      break;
    default:
      return 0;
  }
  if (action.kind != ActionKind::Step) {
    ms /= schedule_.slices;
    if (!options_.micro_batch_factor.empty())
      ms *= options_.micro_batch_factor[std::min(static_cast<std::size_t>(action.micro_batch), options_.micro_batch_factor.size() - 1)];
  }
  if (!options_.rank_factor.empty()) ms *= options_.rank_factor[std::min(static_cast<std::size_t>(rank), options_.rank_factor.size() - 1)];
  if (options_.jitter > 0) {
    const auto key = combine_keys(combine_keys(options_.seed, static_cast<std::uint64_t>(action.kind)),
                                  static_cast<std::uint64_t>(index_(action.chunk, action.micro_batch, action.slice)));
    ms *= 1 + options_.jitter * (2 * random_uniform(key, 0) - 1);
  }
  return ms;
}

void Engine::record(int rank, const Action& action, double start_ms, double end_ms, std::int32_t critical) {
  trace_.push_back({rank, action, start_ms, end_ms});
  critical_.push_back(critical);
}

void Engine::fail_stuck() const {
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].next >= lists_[rank].size()) continue;
    const int at = static_cast<int>(ranks_[rank].next);
    throw InputError(schedule_.name,
                     fmt::format("{} of rank {} waits for ever\n{}", to_string(lists_[rank][ranks_[rank].next]), rank,
                                 grid_text(lists_, std::max(0, at - 6), 13, static_cast<int>(rank), at)),
                     "check the schedule with pipedream schedule --check");
  }
  throw InternalError("a simulation that got nowhere has no rank that waits");
}

std::vector<TimedAction> Engine::critical_path() const {
  std::vector<TimedAction> path;
  std::int32_t entry = kNobody;
  for (const Rank& rank : ranks_)
    if (rank.last_trace != kNobody &&
        (entry == kNobody || trace_[static_cast<std::size_t>(rank.last_trace)].end_ms > trace_[static_cast<std::size_t>(entry)].end_ms))
      entry = rank.last_trace;
  for (; entry != kNobody; entry = critical_[static_cast<std::size_t>(entry)]) path.push_back(trace_[static_cast<std::size_t>(entry)]);
  std::reverse(path.begin(), path.end());
  return path;
}

void Engine::finish_figures(SimulationResult& result) const {
  for (const Rank& rank : ranks_) result.makespan_ms = std::max(result.makespan_ms, rank.last_end_ms);
  double busy = 0;
  result.ranks = figures_;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    RankFigures& figures = result.ranks[r];
    figures.makespan_idle_ms = result.makespan_ms - figures.busy_ms;
    figures.span_idle_ms = std::max(0.0, ranks_[r].last_end_ms - std::max(0.0, ranks_[r].first_start_ms) - figures.busy_ms);
    busy += figures.busy_ms;
    result.actions += static_cast<std::int64_t>(lists_[r].size());
  }
  if (result.makespan_ms > 0) result.bubble = 1 - busy / (result.makespan_ms * static_cast<double>(ranks_.size()));
  result.links = links_.figures();
  if (!options_.keep_trace) return;
  result.critical_path = critical_path();
  result.trace.source = "simulated";
  result.trace.title = schedule_.name;
  result.trace.num_ranks = schedule_.num_ranks();
  result.trace.actions = trace_;
  std::stable_sort(result.trace.actions.begin(), result.trace.actions.end(),
                   [](const TimedAction& a, const TimedAction& b) { return a.rank != b.rank ? a.rank < b.rank : a.start_ms < b.start_ms; });
}

}  // namespace pipedream
