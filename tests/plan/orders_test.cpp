#include "pipedream/plan/orders.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "pipedream/plan/planner.hpp"

namespace pipedream {
namespace {

bool is_topological(const WorkGraph& graph, const std::vector<int>& order) {
  std::vector<int> place(order.size(), -1);
  for (std::size_t i = 0; i < order.size(); ++i) place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  if (std::find(place.begin(), place.end(), -1) != place.end()) return false;
  for (int node = 0; node < graph.size(); ++node)
    for (const int target : graph.targets[static_cast<std::size_t>(node)])
      if (place[static_cast<std::size_t>(node)] >= place[static_cast<std::size_t>(target)]) return false;
  return true;
}

/// Parallel branches of `length` layers between an input and an output, in the file layer by layer across the branches: more than 4^branches cuts,
/// and the order of the file crosses all branches at every cut.
Profile branches(int count, int length, std::int64_t bytes) {
  Profile profile;
  profile.model = "branches";
  const auto add = [&](const std::string& name, double ms) {
    LayerProfile layer;
    layer.name = name;
    layer.forward_ms = ms;
    layer.backward_ms = 2 * ms;
    layer.output_bytes = {bytes};
    profile.layers.push_back(layer);
    return static_cast<int>(profile.layers.size()) - 1;
  };
  const int input = add("input", 1);
  std::vector<int> ends(static_cast<std::size_t>(count), input);
  for (int i = 0; i < length; ++i)
    for (int b = 0; b < count; ++b) {
      const int layer = add("b" + std::to_string(b) + "." + std::to_string(i), 1 + (b * 7 + i * 3) % 5);
      profile.edges.push_back({ends[static_cast<std::size_t>(b)], layer, 0});
      ends[static_cast<std::size_t>(b)] = layer;
    }
  const int output = add("output", 1);
  for (const int end : ends) profile.edges.push_back({end, output, 0});
  return profile;
}

TEST(Orders, AreTopologicalAndStaySoWhenNodesAreMoved) {
  std::mt19937 engine(3);
  int changed = 0;
  for (int round = 0; round < 50; ++round) {
    Profile profile = branches(2 + round % 6, 1 + round % 5, 1000);
    const auto n = static_cast<int>(profile.layers.size());
    for (int i = 0; i < n / 2; ++i) {  // and some edges across
      const int a = static_cast<int>(engine() % static_cast<unsigned>(n - 1)),
                b = a + 1 + static_cast<int>(engine() % static_cast<unsigned>(n - 1 - a));
      if (std::none_of(profile.edges.begin(), profile.edges.end(), [&](const auto& e) { return e.source == a && e.target == b; }))
        profile.edges.push_back({a, b, 0});
    }
    const WorkGraph graph = make_work_graph(profile, false);
    std::vector<int> order;
    for (const auto& one : topological_orders(graph)) {
      EXPECT_TRUE(is_topological(graph, one));
      order = one;
    }
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
      const auto next = moved(graph, order, seed);
      EXPECT_TRUE(is_topological(graph, next)) << "seed " << seed;
      changed += next != order;
      order = next;
    }
  }
  EXPECT_GT(changed, 500);
}

TEST(Orders, DepthFirstCutsBranchesApart) {
  const Profile profile = branches(24, 4, 6'000'000);
  const Cluster cluster = make_cluster({4}, {1e9}, {}, 0);
  PlanOptions options;
  options.alternatives = false;
  options.straight = true;
  options.time_limit_s = 1;
  const Plan plan = make_plan(profile, cluster, options);
  options.planner = "linear";
  const Plan linear = make_plan(profile, cluster, options);
  // A cut across all branches moves 24 tensors of 6 MB both ways: 288 ms, more than the 217 ms that the layers of a stage take.
  EXPECT_LT(plan.predicted.period_ms, 0.9 * linear.predicted.period_ms);
  EXPECT_EQ(plan.predicted.certified, plan.predicted.gap() < 1e-9);
  EXPECT_GE(plan.predicted.gap(), 0);
  EXPECT_GT(plan.predicted.bound_ms, 0);
  options.planner = "exact";
  EXPECT_NEAR(evaluate_plan(profile, cluster, options, plan).predicted.period_ms, plan.predicted.period_ms, 1e-9 * plan.predicted.period_ms);
}

}  // namespace
}  // namespace pipedream
