#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

/// Closed formulas of bubbles and memory (Megatron-LM 2104.04473; Zero Bubble 2401.10241; DualPipe's README; PipeDream, SOSP'19) as laws over random
/// sizes.
namespace pipedream {
namespace {

struct Case {
  int p, m;
  double f, b, w;
};
Case any_case() {
  Case result{*rc::gen::inRange(1, 9), 0, 0, 0, 0};
  result.m = result.p * *rc::gen::inRange(1, 5);
  result.f = *rc::gen::inRange(1, 9);
  result.b = *rc::gen::inRange(1, 9);
  result.w = *rc::gen::inRange(1, 9);
  return result;
}

SimulationResult run(const std::string& name, const Case& c, int chunks = 1, int steps = 1) {
  const ScheduleInfo info = find_schedule(name);
  ScheduleRequest request;
  request.name = name;
  request.chunk_ranks = place_chunks(info.placement, chunks, std::vector<int>(static_cast<std::size_t>(c.p), 1));
  request.step_micro_batches = name == "1f1b-async" ? 1 : c.m;
  request.micro_batches = c.m * steps;
  SimulationOptions options;
  options.chunks = {ChunkCosts{c.f / chunks, c.b / chunks, c.w / chunks}};
  return simulate(make_schedule(request), options);
}

bool near(double a, double b) { return std::abs(a - b) < 1e-6 * std::max(1.0, std::abs(b)); }

TEST(Laws, GPipeAndOneFOneB) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case();
    for (const char* name : {"gpipe", "1f1b"}) {
      const SimulationResult result = run(name, c);
      RC_ASSERT(near(result.ranks[0].makespan_idle_ms, (c.p - 1) * (c.f + c.b + c.w)));
      for (int s = 0; s < c.p; ++s)
        RC_ASSERT(result.ranks[static_cast<std::size_t>(s)].peak_activations == (name == std::string("gpipe") ? c.m : std::min(c.m, c.p - s)));
    }
  }));
}
TEST(Laws, InterleavedDividesTheBubble) {
  EXPECT_TRUE(rc::check([] {
    const Case c = any_case();
    const int v = *rc::gen::inRange(2, 5);
    const SimulationResult result = run("interleaved", c, v);
    RC_ASSERT(near(result.ranks[0].makespan_idle_ms, (c.p - 1) * (c.f + c.b + c.w) / v));
    for (int s = 0; s < c.p; ++s)
      RC_ASSERT(result.ranks[static_cast<std::size_t>(s)].peak_activations == std::min(2 * (c.p - s - 1) + (v - 1) * c.p + 1, c.m * v));
    const SimulationResult breadth = run("looped-bfs", c, v);
    RC_ASSERT(near(breadth.ranks[0].makespan_idle_ms, (c.p - 1) * (c.f + c.b + c.w) / v));
  }));
}
TEST(Laws, ZeroBubbleOfEqualTimes) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case();
    c.b = c.w = c.f;
    c.m += c.p;  // at least 2p
    const SimulationResult first = run("zb-h1", c), second = run("zb-h2", c);
    for (int s = 0; s < c.p; ++s) {
      RC_ASSERT(near(first.ranks[static_cast<std::size_t>(s)].makespan_idle_ms, (c.p - 1) * c.f));
      RC_ASSERT(near(second.ranks[static_cast<std::size_t>(s)].span_idle_ms, 0));
      RC_ASSERT(first.ranks[static_cast<std::size_t>(s)].peak_activations == c.p);
      RC_ASSERT(second.ranks[static_cast<std::size_t>(s)].peak_activations == 2 * c.p - 1);
    }
  }));
}
TEST(Laws, ZeroBubbleWhereTheWeightPartIsNotTheLongest) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case();
    c.m += c.p;
    c.w = std::min({c.f, c.b, c.w});
    double most = 0;
    for (const RankFigures& rank : run("zb-h1", c).ranks) most = std::max(most, rank.span_idle_ms);
    RC_ASSERT(near(most, (c.p - 1) * (c.f + c.b - c.w)));
  }));
}
TEST(Laws, DualPipeV) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case();
    c.m = 2 * c.p + *rc::gen::inRange(0, 9);
    c.f = c.b = c.w = 1;
    const ScheduleInfo info = find_schedule("dualpipe-v");
    ScheduleRequest request;
    request.name = "dualpipe-v";
    request.chunk_ranks = place_chunks(info.placement, 2, std::vector<int>(static_cast<std::size_t>(c.p), 1));
    request.micro_batches = request.step_micro_batches = c.m;
    SimulationOptions options;
    options.pair_ms = 3;
    const SimulationResult result = simulate(make_schedule(request), options);
    RC_ASSERT(near(result.ranks[0].makespan_idle_ms, (c.p - 1) * (3.0 + 2 - 3)));
    for (const RankFigures& rank : result.ranks) RC_ASSERT(rank.peak_activations == 2 * c.p + 1);
  }));
}
TEST(Laws, ChimeraOfEqualTimes) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case();
    c.p = c.m = 2 * *rc::gen::inRange(1, 6);
    c.f = 1;
    c.b = c.w = 0.5;
    const SimulationResult result = run("chimera", c);
    RC_ASSERT(near(result.ranks[0].makespan_idle_ms, c.p - 2));
    for (const RankFigures& rank : result.ranks) RC_ASSERT(rank.peak_activations >= c.p / 2 + 1 && rank.peak_activations <= c.p);
  }));
}
TEST(Laws, AsynchronousHasItsBubbleOnceAPass) {
  EXPECT_TRUE(rc::check([] {
    Case c = any_case();
    c.m += 4 * c.p;
    const SimulationResult result = run("1f1b-async", c);
    RC_ASSERT(near(result.period_ms, c.f + c.b + c.w));
    RC_ASSERT(near(result.ranks[0].makespan_idle_ms, (c.p - 1) * (c.f + c.b + c.w)));
    for (int s = 0; s < c.p; ++s) RC_ASSERT(result.ranks[static_cast<std::size_t>(s)].peak_versions == c.p - s);
  }));
}
TEST(Laws, ReplicasNeedAVersionPerDownstreamWorkerShared) {
  // Versions of stage s = ceil(ranks from s on / R_s): warm-up + 1.
  EXPECT_TRUE(rc::check([] {
    const auto replicas = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 5), rc::gen::inRange(1, 4));
    ScheduleRequest request;
    request.chunk_ranks = place_chunks(Placement::Chain, 1, replicas);
    request.micro_batches = 80;
    const Schedule schedule = make_schedule(request);
    int downstream = 0;
    for (int s = schedule.num_chunks() - 1; s >= 0; --s) {
      const int own = replicas[static_cast<std::size_t>(s)];
      downstream += own;
      RC_ASSERT(versions_needed(schedule, s) == (downstream + own - 1) / own);
    }
  }));
}

/// Steps of its chunk between the forward and the backward of every micro-batch, and the versions read.
struct Lag {
  int chunk, micro_batch, steps, version;
};
std::vector<Lag> lags(const Schedule& schedule) {
  std::vector<Lag> result;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    std::vector<int> steps(static_cast<std::size_t>(schedule.num_chunks()), 0);
    std::vector<std::vector<int>> at_forward(steps.size(), std::vector<int>(static_cast<std::size_t>(schedule.micro_batches), 0));
    for_each_action(schedule, rank, [&](const Action& action) {
      const auto chunk = static_cast<std::size_t>(action.chunk);
      if (action.kind == ActionKind::Step) ++steps[chunk];
      if (action.kind == ActionKind::Forward) at_forward[chunk][static_cast<std::size_t>(action.micro_batch)] = steps[chunk];
      // What counts is how old the weights are when their gradient is applied.
      if (action.kind == ActionKind::Backward) result.push_back({action.chunk, action.micro_batch, steps[chunk] - action.version, action.version});
    });
  }
  return result;
}

TEST(Laws, TwoBuffersAreOneStepLate) {
  EXPECT_TRUE(rc::check([] {
    ScheduleRequest request;
    request.policy = "2bw";
    const int p = *rc::gen::inRange(1, 7);
    request.chunk_ranks = place_chunks(Placement::Chain, 1, std::vector<int>(static_cast<std::size_t>(p), 1));
    request.step_micro_batches = p + *rc::gen::inRange(p == 1 ? 1 : 0, 5);
    request.micro_batches = request.step_micro_batches * *rc::gen::inRange(1, 9);
    const Schedule schedule = make_schedule(request);
    for (const Lag& lag : lags(schedule)) RC_ASSERT(lag.steps == (lag.micro_batch / request.step_micro_batches == 0 ? 0 : 1));
    for (int chunk = 0; chunk < p; ++chunk) RC_ASSERT(versions_needed(schedule, chunk) <= 2);
  }));
}
TEST(Laws, WPipeIsLateInHalfOfItsChunks) {
  EXPECT_TRUE(rc::check([] {
    ScheduleRequest request;
    request.name = "wpipe";
    const int p = *rc::gen::inRange(1, 6);
    request.chunk_ranks = place_chunks(Placement::Loop, 2, std::vector<int>(static_cast<std::size_t>(p), 1));
    request.step_micro_batches = p + *rc::gen::inRange(0, 4);
    request.micro_batches = request.step_micro_batches * *rc::gen::inRange(1, 9);
    const Schedule schedule = make_schedule(request);
    for (const Lag& lag : lags(schedule)) RC_ASSERT((lag.chunk < p ? lag.steps == 0 || lag.steps == 1 : lag.steps == 0));
    for (int chunk = 0; chunk < 2 * p; ++chunk) RC_ASSERT(versions_needed(schedule, chunk) <= (chunk < p ? 2 : 1));
  }));
}
TEST(Laws, VerticalSyncReadsOneVersionAlongAMicroBatch) {
  EXPECT_TRUE(rc::check([] {
    ScheduleRequest request;
    request.policy = "vertical-sync";
    const int p = *rc::gen::inRange(1, 6);
    request.chunk_ranks = place_chunks(Placement::Chain, 1, std::vector<int>(static_cast<std::size_t>(p), 1));
    request.micro_batches = *rc::gen::inRange(1, 40);
    const Schedule schedule = make_schedule(request);
    std::vector<int> version(static_cast<std::size_t>(request.micro_batches), -1);
    for (const Lag& lag : lags(schedule)) {
      int& first = version[static_cast<std::size_t>(lag.micro_batch)];
      if (first < 0) first = lag.version;
      RC_ASSERT(first == lag.version);
      RC_ASSERT(lag.version == std::max(0, lag.micro_batch - (p - 1)));
    }
  }));
}

}  // namespace
}  // namespace pipedream
