#include <algorithm>
#include <map>
#include <set>

#include "pipedream/schedule/order_search.hpp"
#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

// First slots on rank i of the forward of chunk i, the forward of chunk 2p-1-i, the input part of that, the input part of chunk i; every micro-batch
// is six slots later than the one before (2405.15362; spec methods 4.7.6).
struct Slots {
  int forward_down, forward_up, input_up, input_down;
};
Slots half_slots(int p, int i, int e) { return {2 * i, 3 * p - i - 2, 3 * p + e + 2 * i - 1, 6 * p + e - i - 2}; }
Slots min_slots(int p, int i, int e) { return {i, 2 * p - i - 1, 2 * p + e + i, 4 * p + e - i - 1}; }

std::vector<Turn> turns_of(const Slots& slots, int p, int i, int micro_batches) {
  std::vector<std::pair<int, Turn>> timed;
  for (int n = 0; n < micro_batches; ++n) {
    timed.push_back({slots.forward_down + 6 * n, {i, true}});
    timed.push_back({slots.forward_up + 6 * n, {2 * p - 1 - i, true}});
    timed.push_back({slots.input_up + 6 * n, {2 * p - 1 - i, false}});
    timed.push_back({slots.input_down + 6 * n, {i, false}});
  }
  std::stable_sort(timed.begin(), timed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Turn> turns;
  for (const auto& [slot, turn] : timed) turns.push_back(turn);
  return turns;
}

// Activations held at most where the pattern runs as it stands, each until its weight part, which takes the first empty slot after the input part.
int peak_of(const Slots& slots, int micro_batches) {
  std::map<int, int> change;  // by slot: a forward 1, an input part 0, a weight part -1
  for (int n = 0; n < micro_batches; ++n) {
    change[slots.forward_down + 6 * n] = change[slots.forward_up + 6 * n] = 1;
    change[slots.input_down + 6 * n] = change[slots.input_up + 6 * n] = 0;
  }
  std::vector<int> inputs;
  for (const auto& [slot, live] : change)
    if (live == 0) inputs.push_back(slot);
  int last = -1;
  for (const int input : inputs) {
    int slot = std::max(input, last) + 1;
    while (change.count(slot) > 0) ++slot;
    change[slot] = -1;
    last = slot;
  }
  int live = 0, peak = 0;
  for (const auto& [slot, by] : change) peak = std::max(peak, live += by);
  return peak;
}

struct SlottedTurn {
  int slot, position, micro_batch;
  Turn turn;
  bool weight = false;
};

// All of the pattern, weight parts in the first empty slots after their input parts, by slot.
std::vector<SlottedTurn> pattern(int p, int micro_batches, Slots (*slots)(int, int, int), int e) {
  std::vector<SlottedTurn> all;
  for (int i = 0; i < p; ++i) {
    const Slots first = slots(p, i, e);
    const int down = i, up = 2 * p - 1 - i;
    std::vector<SlottedTurn> inputs;
    std::set<int> taken;
    for (int n = 0; n < micro_batches; ++n) {
      for (const auto& [slot, turn] : {std::pair{first.forward_down, Turn{down, true}},
                                       {first.forward_up, Turn{up, true}},
                                       {first.input_up, Turn{up, false}},
                                       {first.input_down, Turn{down, false}}}) {
        all.push_back({slot + 6 * n, i, n, turn});
        taken.insert(slot + 6 * n);
        if (!turn.forward) inputs.push_back(all.back());
      }
    }
    std::stable_sort(inputs.begin(), inputs.end(), [](const SlottedTurn& a, const SlottedTurn& b) { return a.slot < b.slot; });
    for (SlottedTurn& input : inputs) {
      input.weight = true;
      while (!taken.insert(++input.slot).second) {
      }
      all.push_back(input);
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const SlottedTurn& a, const SlottedTurn& b) { return a.slot < b.slot; });
  return all;
}

// Squeezes the pattern: in the order of its slots everything goes to the first free slot that its inputs and the memory allow, which may be before
// what was there. The result is the order by new slots; nothing if there is no room.
std::optional<Order> squeezed(int p, int micro_batches, const std::vector<SlottedTurn>& all, int peak) {
  const auto size = static_cast<std::size_t>(4 * all.back().slot + 64);
  std::vector<std::vector<char>> taken(static_cast<std::size_t>(p), std::vector<char>(size, 0));
  std::vector<std::vector<int>> live(static_cast<std::size_t>(p), std::vector<int>(size, 0));
  const auto place = [&](int chunk, int n) { return static_cast<std::size_t>(chunk * micro_batches + n); };
  std::vector<int> forward_end(static_cast<std::size_t>(2 * p * micro_batches), 0), input_end = forward_end;
  std::vector<std::vector<std::pair<int, Turn>>> placed(static_cast<std::size_t>(p));
  for (const SlottedTurn& item : all) {
    const auto [chunk, forward] = item.turn;
    const auto at = static_cast<std::size_t>(item.position);
    int ready = 0;
    if (item.weight) ready = input_end[place(chunk, item.micro_batch)];
    else if (forward) ready = chunk > 0 ? forward_end[place(chunk - 1, item.micro_batch)] : 0;
    else ready = chunk + 1 < 2 * p ? input_end[place(chunk + 1, item.micro_batch)] : forward_end[place(chunk, item.micro_batch)];
    auto slot = static_cast<std::size_t>(ready);
    const auto has_room = [&](std::size_t from) {
      return !forward || item.weight || *std::max_element(live[at].begin() + static_cast<std::ptrdiff_t>(from), live[at].end()) < peak;
    };
    while (slot + 1 < size && (taken[at][slot] != 0 || !has_room(slot))) ++slot;
    if (slot + 1 >= size) return {};  // no room: not a pattern that runs
    taken[at][slot] = 1;
    const int change = item.weight ? -1 : forward ? 1 : 0;
    for (std::size_t later = item.weight ? slot + 1 : slot; change != 0 && later < size; ++later) live[at][later] += change;
    const int end = static_cast<int>(slot) + 1;
    if (item.weight) continue;
    (forward ? forward_end : input_end)[place(chunk, item.micro_batch)] = end;
    placed[at].emplace_back(end, item.turn);
  }
  Order order;
  for (auto& list : placed) {
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    order.turns.emplace_back();
    for (const auto& [slot, turn] : list) order.turns.back().push_back(turn);
  }
  return order;
}

// The pattern squeezed: every action as early as its inputs and the pattern's own memory let it, weight parts in the gaps; then improved by search.
// `shift` keeps the slots of the pattern apart; the search may start from the others too.
Schedule generate(const ScheduleRequest& request, Slots (*slots)(int, int, int), int (*shift)(int)) {
  return flushing_pipes(request, Placement::Vee, [&](const Pipes& pipes, int micro_batches) {
    const int p = pipes.positions;
    int peak = 1;
    for (int i = 0; i < p; ++i) peak = std::max(peak, peak_of(slots(p, i, shift(p)), micro_batches));
    const OrderProblem problem =
        order_problem(request, Placement::Vee, p, pipes.chunks, micro_batches, request.memory_limit > 0 ? request.memory_limit : peak);
    std::vector<Order> starts;
    for (int e = 0; e < 6; ++e) {
      if (auto order = squeezed(p, micro_batches, pattern(p, micro_batches, slots, e), peak)) starts.push_back(std::move(*order));
      for (const double tolerance : {0.0, 0.5, 0.99}) {
        starts.push_back({{}, tolerance});
        for (int i = 0; i < p; ++i) starts.back().turns.push_back(turns_of(slots(p, i, e), p, i, micro_batches));
      }
    }
    return search_from(problem, starts);
  });
}

}  // namespace

Schedule generate_v_half(const ScheduleRequest& request) {
  return generate(request, half_slots, [](int p) { return p % 2 == 0 ? 3 : 0; });
}
Schedule generate_v_min(const ScheduleRequest& request) {
  return generate(request, min_slots, [](int p) { return p % 3 == 0 ? 2 : 0; });
}

}  // namespace pipedream
