#include "pipedream/plan/plan.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <sstream>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "tests/graph/golden_errors.hpp"

namespace pipedream {
namespace {

Plan random_plan() {
  using rc::gen::inRange;
  const auto real = [] { return *inRange(0, 1000000) / 7.0; };
  Plan plan;
  plan.model = *rc::gen::elementOf(std::vector<std::string>{"", "net"});
  plan.micro_batches = *inRange(1, 9);
  plan.micro_batch = *inRange(0, 9);
  int rank = 0, layer = 0;
  const int stages = *inRange(1, 5);
  for (int s = 0; s < stages; ++s) {
    StagePlan stage;
    stage.name = std::to_string(s);
    for (int i = *inRange(1, 4); i > 0; --i) stage.layers.push_back("layer" + std::to_string(layer++));
    for (int i = *inRange(1, 4); i > 0; --i) stage.ranks.push_back(rank++);
    stage.recompute = *rc::gen::arbitrary<bool>();
    stage.predicted = {real(), real(), real(), real(), real(), real(), *inRange<std::int64_t>(0, 1LL << 50), *inRange(1, 9), *inRange(1, 9)};
    plan.stages.push_back(stage);
  }
  plan.predicted = {real(), real(), *rc::gen::arbitrary<bool>(), real(), real()};
  plan.alternatives = {{"single", real(), false, "memory", "1", 5, 0}, {"straight", real(), true, "", "1-1", 6, real()}};
  plan.search = {real(), 12};
  plan.profile_fingerprint = "0123";
  return plan;
}

RC_GTEST_PROP(Plan, JsonGivesTheSamePlanBack, ()) {
  const Plan plan = random_plan();
  RC_ASSERT(plan_from_json(plan_to_json(plan), "file") == plan);
}

TEST(Plan, ShapeAndRanks) {
  Plan plan;
  plan.stages = {{"0", {"a"}, {0, 1}, false, {}}, {"1", {"b"}, {2}, false, {}}};
  EXPECT_EQ(plan.shape(), "2-1");
  EXPECT_EQ(plan.num_ranks(), 3);
  EXPECT_EQ(plan.num_stages(), 2);
}

TEST(Plan, HasTheKeysOfTheManual) {
  Plan plan;
  plan.stages = {{"0", {"a"}, {0, 1}, false, {}}};
  plan.alternatives = {{"single", 1, true, "", "1", 0, 0}};
  const Json json = parse_json(plan_to_json(plan), "plan");
  for (const char* key : {"schema", "schedule", "policy", "micro_batches", "stages", "predicted", "alternatives", "search"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* key : {"name", "layers", "replicas", "ranks", "recompute", "predicted"}) EXPECT_TRUE(json["stages"][0].contains(key)) << key;
  for (const char* key : {"forward_ms", "backward_ms", "transfer_ms", "reduce_ms", "load_ms", "memory_bytes", "versions"})
    EXPECT_TRUE(json["stages"][0]["predicted"].contains(key)) << key;
  for (const char* key : {"period_ms", "bound_ms", "gap", "certified", "bytes_per_micro_batch", "data_parallel_bytes_per_micro_batch"})
    EXPECT_TRUE(json["predicted"].contains(key)) << key;
  for (const char* key : {"name", "period_ms", "feasible"}) EXPECT_TRUE(json["alternatives"][0].contains(key)) << key;
  EXPECT_TRUE(json["search"].contains("seconds") && json["search"].contains("states"));
}

TEST(Plan, BrokenFilesAreAnswered) {
  expect_golden_errors("tests/plan/broken_plans.golden", 33, [](const std::string& text) { (void)plan_from_json(text, "file"); });
}

}  // namespace
}  // namespace pipedream
