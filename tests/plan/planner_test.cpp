#include "pipedream/plan/planner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A chain whose layers all take 1 ms forward and 2 ms backward.
Profile chain(int layers, std::int64_t output_bytes = 0, std::int64_t parameter_bytes = 0) {
  Profile profile;
  profile.model = "chain";
  for (int i = 0; i < layers; ++i) {
    LayerProfile layer;
    layer.name = "layer" + std::to_string(i);
    layer.forward_ms = 1;
    layer.backward_ms = 2;
    layer.output_bytes = {output_bytes};
    layer.parameter_bytes = parameter_bytes;
    profile.layers.push_back(layer);
    if (i > 0) profile.edges.push_back({i - 1, i, 0});
  }
  return profile;
}

Profile random_chain() {
  Profile profile = chain(*rc::gen::inRange(2, 9));
  for (LayerProfile& layer : profile.layers) {
    layer.forward_ms = *rc::gen::inRange(0, 20);
    layer.backward_ms = *rc::gen::inRange(0, 40);
    layer.output_bytes = {*rc::gen::inRange(0, 5000)};
    layer.parameter_bytes = *rc::gen::inRange(0, 5000);
  }
  return profile;
}

Cluster devices(int n, double bandwidth, std::int64_t memory = 0) { return make_cluster({n}, {bandwidth}, {}, memory); }

double period(const Profile& profile, const Cluster& cluster, bool fewer = true) {
  PlanOptions options;
  options.alternatives = false;
  options.fewer_devices = fewer;
  try {
    return make_plan(profile, cluster, options).predicted.period_ms;
  } catch (const InfeasibleError&) {
    return std::numeric_limits<double>::infinity();
  }
}

// Four equal layers of 3 ms on two devices, free links, weights too heavy to reduce: two and two, 6 ms each.
TEST(Planner, CutsAChainInHalves) {
  PlanOptions options;
  options.straight = true;
  const Plan plan = make_plan(chain(4), devices(2, std::numeric_limits<double>::infinity()), options);
  ASSERT_EQ(plan.shape(), "1-1");
  EXPECT_THAT(plan.stages[0].layers, ElementsAre("layer0", "layer1"));
  EXPECT_THAT(plan.stages[1].ranks, ElementsAre(1));
  EXPECT_DOUBLE_EQ(plan.predicted.period_ms, 6);
  EXPECT_TRUE(plan.predicted.certified);
  EXPECT_DOUBLE_EQ(plan.predicted.gap(), 0);
  EXPECT_EQ(plan.stages[0].predicted.versions, 2);  // warm-up of one and the one in work
  EXPECT_EQ(plan.stages[1].predicted.versions, 1);
}

// 12 ms over 4 replicas are 3 ms; the ring moves 2 * 3/4 * 4000 bytes = 6000 bytes at 1e6 bytes/s = 6 ms per step, every 4 micro-batches: 1.5 ms.
TEST(Planner, ReplicatesWhereTheRingIsHidden) {
  const Plan plan = make_plan(chain(4, 1'000'000, 1000), devices(4, 1e6), {});
  EXPECT_EQ(plan.shape(), "4");
  EXPECT_DOUBLE_EQ(plan.predicted.period_ms, 3);
  EXPECT_DOUBLE_EQ(plan.stages[0].predicted.reduce_ms, 6);
  EXPECT_DOUBLE_EQ(plan.predicted.bytes_per_micro_batch, 2 * 3 * 4000 / 4.0);
  EXPECT_DOUBLE_EQ(plan.predicted.data_parallel_bytes_per_micro_batch, 6000);
}

// More than 2,048 uniform devices, gradients that take longer than the compute: fewer devices would do for this period, all are to be used.
TEST(Planner, GivesAllOfManyDevicesToStages) {
  Profile profile = chain(300, 1000, 1'000'000);
  for (std::size_t i = 0; i < profile.layers.size(); ++i) profile.layers[i].forward_ms = 1 + static_cast<double>(i % 7) / 7;
  PlanOptions options;
  options.alternatives = false;
  options.reduce_overlap = 0;
  const Cluster many = devices(2500, 1e9);
  const Plan plan = make_plan(profile, many, options);
  EXPECT_EQ(plan.num_ranks(), 2500);
  EXPECT_TRUE(plan.predicted.certified);
  EXPECT_NEAR(evaluate_plan(profile, many, options, plan).predicted.period_ms, plan.predicted.period_ms, 1e-9 * plan.predicted.period_ms);
  // As the search over all labels says where it is small enough: same period with fewer devices allowed.
  options.fewer_devices = true;
  EXPECT_EQ(make_plan(profile, many, options).predicted.period_ms, plan.predicted.period_ms);
}

// The limit of time is one of work, so each of these stops at another place.
TEST(Planner, ASearchThatWasStoppedProvesNothing) {
  Profile profile = chain(60, 1000, 3'000'000);
  for (std::size_t i = 0; i < profile.layers.size(); ++i) profile.layers[i].forward_ms = 1 + static_cast<double>(i * 5 % 13);
  int stopped = 0;
  for (const Cluster& cluster : {devices(24, 1e9), make_cluster({4, 6}, {4e9, 1e9}, {}, 0)}) {
    PlanOptions options;
    options.alternatives = false;
    options.reduce_overlap = 0;
    const double best = make_plan(profile, cluster, options).predicted.period_ms;
    for (double seconds = 1e-5; seconds < 1; seconds *= 1.3) {
      options.time_limit_s = seconds;
      try {
        const Plan plan = make_plan(profile, cluster, options);
        EXPECT_GE(plan.predicted.period_ms, best * (1 - 1e-12));
        EXPECT_LE(plan.predicted.bound_ms, best * (1 + 1e-12)) << seconds;
        EXPECT_TRUE(!plan.predicted.certified || plan.predicted.period_ms <= best * (1 + 1e-12)) << seconds;
        stopped += plan.predicted.certified ? 0 : 1;
      } catch (const InfeasibleError&) {
        ++stopped;  // before the first plan
      }
    }
  }
  EXPECT_GT(stopped, 5);
}

TEST(Planner, ListsWhatElseCouldBeDone) {
  const Plan plan = make_plan(chain(4, 1000, 1000), devices(2, 1e9), {});
  std::vector<std::string> names;
  for (const Alternative& a : plan.alternatives) names.push_back(a.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"single", "data-parallel", "straight", "one stage more"}));
  EXPECT_DOUBLE_EQ(plan.alternatives[0].period_ms, 12);
}

TEST(Planner, NamesTheTightestStageWhenMemoryIsTooSmall) {
  Profile profile = chain(3, 0, 1000);
  profile.layers[1].parameter_bytes = 1'000'000;
  PlanOptions options;
  options.straight = true;
  try {
    (void)make_plan(profile, devices(3, 1e9, 100'000), options);
    FAIL() << "a plan that does not fit";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("layer 'layer1'"));
    EXPECT_THAT(error.what(), HasSubstr("are missing"));
  }
}

TEST(Planner, WrongQuestionsAreAnswered) {
  const Profile profile = chain(3);
  PlanOptions options;
  options.planner = "best";
  EXPECT_THROW((void)make_plan(profile, devices(2, 1e9), options), UsageError);
  options = {};
  options.cost_model = "cheap";
  EXPECT_THROW((void)make_plan(profile, devices(2, 1e9), options), UsageError);
  options = {};
  options.schedule = "fast";
  EXPECT_THROW((void)make_plan(profile, devices(2, 1e9), options), UsageError);
  options = {};
  options.optimizer = "lion";
  EXPECT_THROW((void)make_plan(profile, devices(2, 1e9), options), UsageError);
  options = {};
  options.straight = true;
  EXPECT_THROW((void)make_plan(profile, devices(5, 1e9), options), InfeasibleError);
  EXPECT_THROW((void)make_plan(Profile{}, devices(2, 1e9), {}), InputError);
}

TEST(Planner, EveryPlannerGivesAPlanThatTheEvaluatorConfirms) {
  const Profile profile = chain(6, 1000, 2000);
  for (const PlannerInfo& info : list_planners()) {
    PlanOptions options;
    options.planner = info.name;
    options.alternatives = false;
    const Plan plan = make_plan(profile, devices(3, 1e8), options);
    EXPECT_NEAR(evaluate_plan(profile, devices(3, 1e8), options, plan).predicted.period_ms, plan.predicted.period_ms, 1e-12) << info.name;
    EXPECT_LE(plan.predicted.bound_ms, plan.predicted.period_ms * (1 + 1e-12)) << info.name;
  }
}

TEST(Planner, LeavesTheScheduleToThePlanner) {
  PlanOptions options;
  options.schedule = "auto";
  const Plan plan = make_plan(chain(4, 10, 100), devices(2, 1e9), options);
  EXPECT_DOUBLE_EQ(plan.predicted.period_ms, 6);
}

TEST(Planner, ExplainsBottleneckAndWhatWouldHelp) {
  const Cluster cluster = devices(2, 1e9);
  const Plan plan = make_plan(chain(4, 10, 100), cluster, {});
  const std::string text = explain_plan(chain(4, 10, 100), cluster, {}, plan);
  EXPECT_THAT(text, HasSubstr("limited by compute"));
  EXPECT_THAT(text, HasSubstr("one more device"));
  EXPECT_THAT(text, HasSubstr("next best"));
}

// Four chains side by side between two layers, six layers each: 7^4 + 2 cuts. The large weights at their ends make long stages dear.
TEST(Planner, TellsAnHonestBoundWhereItRunsOutOfTime) {
  int cut_short = 0, raised = 0;
  for (int seed = 0; seed < 12; ++seed) {
    Profile profile = chain(26);
    profile.edges.clear();
    for (int i = 0; i < 26; ++i) {
      LayerProfile& layer = profile.layers[static_cast<std::size_t>(i)];
      layer.output_bytes = {500 + (i * 7919 + seed * 131) % 2000};
      layer.parameter_bytes = (i * 104729 + seed * 17) % 5000;
      layer.forward_ms = 1 + (i * 31 + seed * 7) % 5;
      if (i == 0 || i == 25) continue;
      profile.edges.push_back({(i - 1) % 6 == 0 ? 0 : i - 1, i, 0});
      if (i % 6 == 0) profile.edges.push_back({i, 25, 0});
    }
    PlanOptions options;
    options.alternatives = false;
    const Cluster cluster = devices(5, 2e5);
    const Plan best = make_plan(profile, cluster, options);
    ASSERT_TRUE(best.predicted.certified);
    options.time_limit_s = 0.005;  // 50,000 states
    const Plan plan = make_plan(profile, cluster, options);
    EXPECT_LE(plan.predicted.bound_ms, best.predicted.period_ms);
    EXPECT_GE(plan.predicted.period_ms, best.predicted.period_ms);
    if (plan.predicted.certified) continue;
    ++cut_short;
    double compute = 0;
    for (const LayerProfile& layer : profile.layers) compute += layer.forward_ms + layer.backward_ms;
    if (plan.predicted.bound_ms > compute / 5 * (1 + 1e-6)) ++raised;
  }
  EXPECT_GT(cut_short, 0);
  EXPECT_GT(raised, 0);
}

RC_GTEST_PROP(PlannerLaws, MoreOfAnythingIsNeverWorse, ()) {
  const Profile profile = random_chain();
  const int n = *rc::gen::inRange(1, 5);
  const double bandwidth = *rc::gen::inRange(50, 2000) * 1000.0;
  const std::int64_t memory = *rc::gen::inRange(5000, 60000);
  const double value = period(profile, devices(n, bandwidth, memory));
  RC_ASSERT(period(profile, devices(n + 1, bandwidth, memory)) <= value * (1 + 1e-12));
  RC_ASSERT(period(profile, devices(n, bandwidth * 2, memory)) <= value * (1 + 1e-12));
  RC_ASSERT(period(profile, devices(n, bandwidth, memory * 2)) <= value * (1 + 1e-12));
}

RC_GTEST_PROP(PlannerLaws, TwiceTheCostsAreTwiceThePeriod, ()) {
  const Profile profile = random_chain();
  const double bandwidth = *rc::gen::inRange(50, 2000) * 1000.0;
  Profile doubled = profile;
  for (LayerProfile& layer : doubled.layers) layer.forward_ms *= 2, layer.backward_ms *= 2;
  const double once = period(profile, devices(3, bandwidth)), twice = period(doubled, devices(3, bandwidth / 2));
  RC_ASSERT(std::abs(twice - 2 * once) <= 1e-9 * twice);
}

RC_GTEST_PROP(PlannerLaws, OrderInTheFileDoesNotMatter, ()) {
  const Profile profile = random_chain();
  const int n = profile.num_layers();
  std::vector<int> at(static_cast<std::size_t>(n));
  std::iota(at.begin(), at.end(), 0);
  std::reverse(at.begin(), at.end());
  Profile permuted = profile;
  for (int i = 0; i < n; ++i)
    permuted.layers[static_cast<std::size_t>(at[static_cast<std::size_t>(i)])] = profile.layers[static_cast<std::size_t>(i)];
  for (ProfileEdge& edge : permuted.edges) edge = {at[static_cast<std::size_t>(edge.source)], at[static_cast<std::size_t>(edge.target)], edge.output};
  RC_ASSERT(period(profile, devices(3, 1e5)) == period(permuted, devices(3, 1e5)));
}

// Machines may change places, and devices in a machine: the network looks the same from everywhere.
RC_GTEST_PROP(PlannerLaws, OrderOfUnequalDevicesInTheFileDoesNotMatter, ()) {
  Profile profile = random_chain();
  profile.layers.front().forward_ms += 1;
  PlanOptions options;
  options.alternatives = false;
  const auto plan_with = [&](const std::vector<double>& speeds) {
    Cluster cluster = make_cluster({2, 2}, {4e6, 1e6}, {}, 0);
    for (std::size_t i = 0; i < speeds.size(); ++i) cluster.devices[i].speed = speeds[i];
    const Plan plan = make_plan(profile, cluster, options);
    RC_ASSERT(plan.predicted.certified);
    const double again = evaluate_plan(profile, cluster, options, plan).predicted.period_ms;
    RC_ASSERT(std::abs(again - plan.predicted.period_ms) <= 1e-9 * again);
    return plan.predicted.period_ms;
  };
  const double apart = plan_with({3, 3, 1, 1}), mixed = plan_with({3, 1, 1, 3});
  RC_ASSERT(plan_with({1, 1, 3, 3}) == apart);
  RC_ASSERT(plan_with({1, 3, 3, 1}) == mixed);
  RC_ASSERT(plan_with({3, 1, 3, 1}) == mixed);
  RC_ASSERT(plan_with({1, 3, 1, 3}) == mixed);
}

TEST(Planner, PutsTheFasterMachineWhereItServesBest) {
  // The first layer takes three times as long as the second, its weights are too many to replicate: it belongs on the fast machine, the second in the
  // file.
  Profile profile = chain(2, 1000, 1'000'000'000);
  profile.layers[0].forward_ms = 3;
  profile.layers[0].backward_ms = 6;
  Cluster cluster = make_cluster({1, 2}, {1e9, 1e9}, {}, 0);
  cluster.levels = {{1, 4e9, 0, false}, {2, 1e9, 0, true}};  // a shared level: places count
  cluster.devices[1].speed = 3;
  PlanOptions options;
  options.alternatives = false;
  const Plan plan = make_plan(profile, cluster, options);
  EXPECT_DOUBLE_EQ(plan.predicted.period_ms, 3);
  EXPECT_EQ(plan.stages.at(0).ranks, std::vector<int>{1});
}

RC_GTEST_PROP(PlannerLaws, SplittingALayerInFreeHalvesIsNeverWorse, ()) {
  const Profile profile = random_chain();
  const int split = *rc::gen::inRange(0, profile.num_layers());
  Profile finer = profile;
  LayerProfile& first = finer.layers[static_cast<std::size_t>(split)];
  LayerProfile second = first;
  second.name = "second half";
  first.forward_ms /= 2, first.backward_ms /= 2, second.forward_ms /= 2, second.backward_ms /= 2;
  first.parameter_bytes = 0;
  second.output_bytes = first.output_bytes;
  first.output_bytes = {0};
  const int added = finer.num_layers();
  finer.layers.push_back(second);
  for (ProfileEdge& edge : finer.edges)
    if (edge.source == split) edge.source = added;
  finer.edges.push_back({split, added, 0});
  RC_ASSERT(period(finer, devices(3, 1e5)) <= period(profile, devices(3, 1e5)) * (1 + 1e-12));
}

RC_GTEST_PROP(PlannerLaws, SameQuestionSameAnswer, ()) {
  const Profile profile = random_chain();
  Plan one = make_plan(profile, devices(3, 1e5), {}), two = make_plan(profile, devices(3, 1e5), {});
  one.search.seconds = two.search.seconds = 0;
  RC_ASSERT(plan_to_json(one) == plan_to_json(two));
}

}  // namespace
}  // namespace pipedream
