// Plans three layers over two devices and prints the plan's shape.
#include <cstdio>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/planner.hpp"

int main() {
  using namespace pipedream;
  Profile profile;
  for (const char* name : {"first", "second", "third"}) {
    LayerProfile layer;
    layer.name = name;
    layer.forward_ms = 1;
    layer.backward_ms = 2;
    layer.output_bytes = {1000};
    profile.layers.push_back(layer);
  }
  profile.edges = {{0, 1, 0}, {1, 2, 0}};
  const Plan plan = make_plan(profile, make_cluster({2}, {1e9}, {0.01}, 0), {});
  std::printf("%s: %.3f ms per micro-batch\n", plan.shape().c_str(), plan.predicted.period_ms);
  return plan.num_ranks() == 2 ? 0 : 1;
}
