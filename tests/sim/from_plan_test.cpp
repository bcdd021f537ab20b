#include <gtest/gtest.h>

#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

// Two stages, the first on two ranks; a skip edge from layer a to layer c crosses the cut beside b's output.
Profile profile() {
  Profile result;
  for (const char* name : {"a", "b", "c"}) {
    LayerProfile layer;
    layer.name = name;
    layer.forward_ms = 1;
    layer.backward_ms = 2;
    layer.update_ms = 0.5;
    layer.output_bytes = {1000};
    layer.parameter_bytes = 4000;
    result.layers.push_back(layer);
  }
  result.edges = {{0, 1, 0}, {1, 2, 0}, {0, 2, 0}};
  return result;
}

Plan plan() {
  Plan result;
  result.stages = {StagePlan{"0", {"a", "b"}, {0, 1}, false, {}}, StagePlan{"1", {"c"}, {2}, true, {}}};
  return result;
}

TEST(FromPlan, TakesTimesBytesAndSpeedsFromProfileAndCluster) {
  Cluster cluster = make_cluster({3}, {1e6}, {0.25}, 0);
  cluster.devices[2].speed = 2;
  const SimulationOptions options = simulation_options(plan(), profile(), cluster);
  ASSERT_EQ(options.chunks.size(), 2U);
  EXPECT_DOUBLE_EQ(options.chunks[0].forward_ms, 2);
  EXPECT_DOUBLE_EQ(options.chunks[0].backward_input_ms + options.chunks[0].backward_weight_ms, 4);
  EXPECT_EQ(options.chunks[0].reduce_bytes, 8000);
  EXPECT_EQ(options.edge_bytes, (std::vector<double>{2000}));  // b's output and a's, each once
  EXPECT_EQ(options.rank_factor, (std::vector<double>{1, 1, 0.5}));
  EXPECT_DOUBLE_EQ(options.chunks[1].activation_bytes, 2000);  // only its inputs are kept, the rest is computed again
}

TEST(FromPlan, RunsTheScheduleOfThePlan) {
  const Cluster cluster = make_cluster({3}, {1e9}, {0}, 0);
  const Schedule schedule = schedule_of(plan(), profile(), 40);
  EXPECT_EQ(schedule.chunk_ranks, (std::vector<std::vector<int>>{{0, 1}, {2}}));
  int recomputed = 0;
  for_each_action(schedule, 2, [&](const Action& action) { recomputed += action.kind == ActionKind::Recompute ? 1 : 0; });
  EXPECT_EQ(recomputed, 40);
  const SimulationResult result = simulate(plan(), profile(), cluster, 40);
  // Stage 1: forward 1, again 1, backward 2, update 0.5 = 4.5 ms a micro-batch; stage 0: (2 + 4 + 1) / 2 = 3.5.
  EXPECT_NEAR(result.period_ms, 4.5, 0.02);
}

}  // namespace
}  // namespace pipedream
