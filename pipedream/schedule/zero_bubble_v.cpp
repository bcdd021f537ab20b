#include "pipedream/schedule/order_search.hpp"
#include "pipedream/schedule/pipes.hpp"

namespace pipedream {
namespace {

// Two chunks per rank in a V: chunk r going down, chunk 2p-1-r coming back. The wave that fits equal times without a gap, in the memory of 1F1B:
// warm-up of forwards down, forwards up and down in turn, then a forward and an input part of one chunk after those of the other. It asks for 2p-1
// micro-batches; with fewer, what concerns the missing ones is left out.
std::vector<Turn> wave(int p, int r, int micro_batches) {
  const int asked = std::max(2 * p - 1, micro_batches), down = r, up = 2 * p - 1 - r;
  int forwards[2] = {0, 0}, inputs[2] = {0, 0};
  std::vector<Turn> turns;
  const auto forward = [&](int way) {
    if (forwards[way]++ < micro_batches) turns.push_back({way == 0 ? down : up, true});
  };
  const auto input = [&](int way) {
    if (inputs[way]++ < micro_batches) turns.push_back({way == 0 ? down : up, false});
  };
  for (int i = 0; i < 2 * (p - r) - 1; ++i) forward(0);
  for (int i = 0; i < r; ++i) {
    forward(1);
    forward(0);
  }
  for (int i = 0; i < p - r; ++i) {
    forward(1);
    input(1);
  }
  while (forwards[1] < forwards[0] || forwards[0] < asked) {
    if (forwards[0] < asked) forward(0);
    input(0);
    forward(1);
    input(1);
  }
  for (int i = 0; i < r; ++i) {
    input(0);
    input(1);
  }
  for (int i = 0; i < p - r; ++i) input(0);
  return turns;
}

}  // namespace

// ZB-V (2405.15362; spec methods 4.7.5): the wave, improved by search for the costs at hand. An activation here is one of a chunk, half a rank's.
Schedule generate_zero_bubble_v(const ScheduleRequest& request) {
  return flushing_pipes(request, Placement::Vee, [&](const Pipes& pipes, int micro_batches) {
    const int p = pipes.positions;
    const OrderProblem problem =
        order_problem(request, Placement::Vee, p, pipes.chunks, micro_batches, request.memory_limit > 0 ? request.memory_limit : 2 * p);
    std::vector<Order> starts;
    for (const double tolerance : {0.0, 0.5, 0.99}) {
      starts.push_back({{}, tolerance});
      for (int r = 0; r < p; ++r) starts.back().turns.push_back(wave(p, r, micro_batches));
    }
    return search_from(problem, starts);
  });
}

}  // namespace pipedream
