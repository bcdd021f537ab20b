#include "pipedream/sim/simulate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

Schedule chain(const std::string& name, int ranks, int micro_batches, int step = 0) {
  ScheduleRequest request;
  request.name = name;
  request.chunk_ranks = place_chunks(Placement::Chain, 1, std::vector<int>(static_cast<std::size_t>(ranks), 1));
  request.micro_batches = micro_batches;
  request.step_micro_batches = step > 0 ? step : micro_batches;
  return make_schedule(request);
}

TEST(Simulate, TwoRanksByHand) {
  // gpipe, F = 2, B = 3, hop 1, two micro-batches, per rank:
  // rank 0: F0 0-2, F1 2-4;   rank 1: F0 3-5, F1 5-7, B1 7-10, B0 10-13;   rank 0: B1 11-14, B0 14-17
  SimulationOptions options;
  options.chunks = {ChunkCosts{2, 2, 1}};
  options.links.latency_ms = 1;
  const SimulationResult result = simulate(chain("gpipe", 2, 2), options);
  EXPECT_DOUBLE_EQ(result.makespan_ms, 17);
  EXPECT_DOUBLE_EQ(result.ranks[0].busy_ms, 10);
  EXPECT_DOUBLE_EQ(result.ranks[0].span_idle_ms, 7);
  EXPECT_DOUBLE_EQ(result.ranks[0].wait_gradient_ms, 7);
  EXPECT_DOUBLE_EQ(result.ranks[1].span_idle_ms, 0);
  EXPECT_DOUBLE_EQ(result.ranks[1].makespan_idle_ms, 7);
  EXPECT_DOUBLE_EQ(result.bubble, 14.0 / 34);
  std::string path;
  for (const TimedAction& timed : result.critical_path) path += to_string(timed.action).substr(0, 3) + " ";
  EXPECT_EQ(path, "0F0 1F0 1F1 1B1 0B1 0B0 0O1 ");
}

TEST(Simulate, AMessageOccupiesItsLinkAndThenTravels) {
  // 1000 bytes at 1e6 bytes/s occupy the link for 1 ms, then 0.5 ms of latency. F0 ends at 0.1, F1 at 0.2: arrivals 1.6 and 2.6.
  SimulationOptions options;
  options.chunks = {ChunkCosts{0.1, 0.1, 0.1}};
  options.edge_bytes = {1000};
  options.links = {0.5, 1e6, {}};
  const SimulationResult result = simulate(chain("gpipe", 2, 2), options);
  for (const TimedAction& timed : result.trace.actions) {
    if (timed.rank != 1 || timed.action.kind != ActionKind::Forward) continue;
    EXPECT_NEAR(timed.start_ms, timed.action.micro_batch == 0 ? 1.6 : 2.6, 1e-12);
  }
  ASSERT_EQ(result.links.size(), 2U);
  EXPECT_EQ(result.links[0], (LinkFigures{0, 1, 2, 2000, 2}));
}

TEST(Simulate, ReplicasWaitForTheirReduction) {
  // Two replicas, 1 MB of gradients at 1e9 bytes/s: ring of 2 steps of half a megabyte = 1 ms. Forward 1, backward 2, update 0.25: 4.25 ms.
  ScheduleRequest request;
  request.name = "data-parallel";
  request.chunk_ranks = {{0, 1}};
  request.micro_batches = 2;
  SimulationOptions options;
  options.chunks = {ChunkCosts{1, 1, 1, 0.25, 1'000'000}};
  options.links.bandwidth = 1e9;
  const SimulationResult result = simulate(make_schedule(request), options);
  EXPECT_DOUBLE_EQ(result.makespan_ms, 4.25);
  EXPECT_DOUBLE_EQ(result.ranks[0].wait_reduction_ms, 1);
}

TEST(Simulate, AsynchronousReplicasExchangeBesideTheirCompute) {
  // Forward 1, backward 2, update 0.25. An exchange of 1 MB at 1e9 bytes/s takes 1 ms, beside the next micro-batch: 3.25 ms for each of two replicas,
  // nothing waits. One of 10 MB takes 10 ms, and the next waits for it: the link decides.
  ScheduleRequest request;
  request.name = "asp";
  request.chunk_ranks = {{0, 1}};
  request.micro_batches = 8;
  SimulationOptions options;
  options.chunks = {ChunkCosts{1, 1, 1, 0.25, 1'000'000}};
  options.links.bandwidth = 1e9;
  SimulationResult result = simulate(make_schedule(request), options);
  EXPECT_DOUBLE_EQ(result.makespan_ms, 4 * 3.25);
  EXPECT_DOUBLE_EQ(result.ranks[0].wait_reduction_ms, 0);
  options.chunks[0].reduce_bytes = 10'000'000;
  result = simulate(make_schedule(request), options);
  // Exchanges begin at 3, 13, 23, 33; the last step follows the last beginning.
  EXPECT_DOUBLE_EQ(result.makespan_ms, 33.25);
  EXPECT_DOUBLE_EQ(result.ranks[0].wait_reduction_ms, 33.25 - 4 * 3.25);
}

TEST(Simulate, SharedLevelsQueue) {
  // Four ranks in one group with a shared level: two pipes 0-1 and 2-3 would not disturb each other on links of their own.
  ScheduleRequest request;
  request.name = "gpipe";
  request.chunk_ranks = {{0, 2}, {1, 3}};
  request.micro_batches = 2;
  request.step_micro_batches = 2;
  SimulationOptions options;
  options.edge_bytes = {1000};
  Cluster cluster = make_cluster({4}, {1e6}, {0}, 0);
  options.links.cluster = cluster;
  EXPECT_DOUBLE_EQ(simulate(make_schedule(request), options).makespan_ms, 1 + 1 + 1 + 2 + 1 + 2);
  cluster.levels[0].shared = true;
  options.links.cluster = cluster;
  EXPECT_DOUBLE_EQ(simulate(make_schedule(request), options).makespan_ms, 1 + 1 + 1 + 1 + 2 + 1 + 2);
}

TEST(Simulate, PeriodOfAnEndlessScheduleIsTheSlowestStage) {
  SimulationOptions options;
  options.chunks = {ChunkCosts{1, 1, 1}, ChunkCosts{2, 2, 1.5}, ChunkCosts{1, 0.5, 1}};
  EXPECT_NEAR(simulate(chain("1f1b-async", 3, 60, 1), options).period_ms, 5.5, 1e-9);
}

TEST(Simulate, ReplicasShareThePeriod) {
  ScheduleRequest request;
  request.name = "1f1b-async";
  request.chunk_ranks = {{0, 1, 2}, {3}};
  request.micro_batches = 90;
  SimulationOptions options;
  options.chunks = {ChunkCosts{3, 3, 3}, ChunkCosts{1, 1, 0.5}};  // 9 ms / 3 replicas
  EXPECT_NEAR(simulate(make_schedule(request), options).period_ms, 3, 1e-9);
}

TEST(Simulate, TransfersInTheListOrNotGiveTheSameTimes) {
  EXPECT_TRUE(rc::check([] {
    ScheduleRequest request;
    request.name = *rc::gen::elementOf(std::vector<std::string>{"gpipe", "1f1b", "1f1b-async"});
    request.chunk_ranks = place_chunks(Placement::Chain, 1, *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 5), rc::gen::inRange(1, 3)));
    request.micro_batches = *rc::gen::inRange(1, 30);
    request.step_micro_batches = *rc::gen::inRange(1, 8);
    SimulationOptions options;
    options.chunks = {ChunkCosts{1, 2, 3}};
    options.links.latency_ms = 0.5;
    options.jitter = 0.3;
    options.seed = 7;
    ScheduleRequest plain = request;
    const SimulationResult with = simulate(make_schedule(request), options);
    const SimulationResult without = simulate(generate(plain), options);
    // Without reductions replicas do not wait for each other, so only unreplicated ones compare exactly.
    if (std::all_of(request.chunk_ranks.begin(), request.chunk_ranks.end(), [](const auto& ranks) { return ranks.size() == 1; }))
      RC_ASSERT(std::abs(with.makespan_ms - without.makespan_ms) < 1e-9);
    else RC_ASSERT(with.makespan_ms >= without.makespan_ms - 1e-9);
  }));
}

}  // namespace
}  // namespace pipedream
