#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "pipedream/model/layers.hpp"
#include "pipedream/runtime/verify.hpp"
#include "replica_reenactment.hpp"
#include "support.hpp"
#include "train_over.hpp"

namespace pipedream::test {
namespace {

Model replica_model(const std::string& name) { return name == "dropout" ? small_dropout() : small_mlp(); }

TrainOptions replica_options() {
  TrainOptions options;
  options.seed = 7;
  options.optimizer.learning_rate = 0.05;
  options.optimizer.momentum = 0.9;
  options.optimizer.weight_decay = 0.01;
  options.collect_weights = true;
  options.threads_per_rank = 1;
  return options;
}

// --- Asynchronous 1F1B-RR -----------------------------------------------------------------------------------------------------------------

/// Forwards of a replica before its first backward: floor((N - 1 - ranks before) / R) (methods.md 4.0).
int warm_up_of(const std::vector<int>& shape, int stage) {
  const int all = std::accumulate(shape.begin(), shape.end(), 0), before = std::accumulate(shape.begin(), shape.begin() + stage, 0);
  return (all - 1 - before) / shape[static_cast<std::size_t>(stage)];
}

/// Stashing: micro-batch i is the (i div R)-th of its replica, and the replicas have made as many steps as each has had backwards by then.
int stash_version_of(const std::vector<int>& shape, int stage, int micro_batch) {
  return std::max(0, micro_batch / shape[static_cast<std::size_t>(stage)] - warm_up_of(shape, stage));
}

/// Vertical sync: all stages use what stage 0 had taken in when the micro-batch entered, counted in micro-batches.
int vertical_version_of(const std::vector<int>& shape, int stage, int micro_batch) {
  return stash_version_of(shape, 0, micro_batch) * shape[0] / shape[static_cast<std::size_t>(stage)];
}

struct ReplicaCase {
  std::string policy;
  std::vector<int> shape;
  int micro_batches;
  std::string model = "mlp";
};
void PrintTo(const ReplicaCase& c, std::ostream* out) {
  *out << c.model << "_" << c.policy << "_" << fmt::format("{}", fmt::join(c.shape, "-")) << "_" << c.micro_batches;
}

class AsynchronousReplicas : public testing::TestWithParam<ReplicaCase> {};

TEST_P(AsynchronousReplicas, EqualTheirReenactmentAndGlooEqualsThreadsBitForBit) {
  const auto& [policy, shape, micro_batches, name] = GetParam();
  const Model model = replica_model(name);
  const SourceFactory data = random_data(model, {micro_batches, 4, 3, 5});
  const Plan plan = plan_by_count(model, shape, "1f1b-async", policy, 1);
  const auto threads = train_over("threads", model, plan, replica_options(), data);
  const auto source = data({});
  ReplicaRule rule{{}, shape};
  if (policy == "stash") rule.version_of = [s = shape](int stage, int i) { return stash_version_of(s, stage, i); };
  else rule.version_of = [s = shape](int stage, int i) { return vertical_version_of(s, stage, i); };
  const auto oracle = reenact_replicas(model, plan, rule, replica_options(), *source);
  ASSERT_EQ(threads.losses.size(), oracle.losses.size());
  for (std::size_t i = 0; i < oracle.losses.size(); ++i) EXPECT_NEAR(threads.losses[i], oracle.losses[i], 2e-4) << "micro-batch " << i;
  EXPECT_LE(largest_difference(threads.weights, oracle.weights), 5e-5);
  // The oracle can fail: one version less in the first stage is seen.
  ReplicaRule wrong = rule;
  wrong.version_of = [right = rule.version_of](int stage, int i) { return std::max(0, right(stage, i) - (stage == 0 ? 1 : 0)); };
  EXPECT_GT(largest_difference(threads.weights, reenact_replicas(model, plan, wrong, replica_options(), *data({})).weights), 3e-4);

  for (const char* transport : {"gloo", "hybrid"}) {
    SCOPED_TRACE(transport);
    const auto processes = train_over(transport, model, plan, replica_options(), data);
    EXPECT_EQ(processes.losses, threads.losses);
    EXPECT_EQ(largest_difference(processes.weights, threads.weights), 0);
    EXPECT_EQ(processes.training_bytes_sent, threads.training_bytes_sent);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AsynchronousReplicas,
                         testing::Values(ReplicaCase{"stash", {1, 1}, 23}, ReplicaCase{"stash", {2, 1}, 23}, ReplicaCase{"stash", {1, 2}, 23},
                                         ReplicaCase{"stash", {2, 2}, 21, "dropout"}, ReplicaCase{"stash", {3, 1}, 25},
                                         ReplicaCase{"stash", {2, 1, 1}, 23}, ReplicaCase{"stash", {1, 3, 2}, 29},
                                         ReplicaCase{"stash", {3, 2}, 26, "dropout"}, ReplicaCase{"vertical-sync", {1, 1, 1}, 23},
                                         ReplicaCase{"vertical-sync", {2, 1}, 23}, ReplicaCase{"vertical-sync", {1, 2}, 23},
                                         ReplicaCase{"vertical-sync", {2, 1, 1}, 25, "dropout"}));

// --- 2BW: every stage uses the version of the batch before (methods.md 4.1) ------------------------------------------------------------------

class DoubleBuffered : public testing::TestWithParam<ReplicaCase> {};

TEST_P(DoubleBuffered, EqualsItsReenactmentAndGlooEqualsThreadsBitForBit) {
  const auto& [policy, shape, micro_batches, name] = GetParam();
  const Model model = replica_model(name);
  const SourceFactory data = random_data(model, {micro_batches, 4, 2, 5});
  const int batch = 4;
  const Plan plan = plan_by_count(model, shape, "1f1b-async", policy, batch);
  const auto threads = train_over("threads", model, plan, replica_options(), data);
  const ReplicaRule rule{[](int, int i) { return std::max(i / batch - 1, 0); }, std::vector<int>(shape.size(), batch)};
  const auto oracle = reenact_replicas(model, plan, rule, replica_options(), *data({}));
  EXPECT_LE(largest_difference(threads.weights, oracle.weights), 5e-5);
  for (const auto& rank : threads.ranks) EXPECT_LE(rank.versions, 2);
  const auto gloo = train_over("gloo", model, plan, replica_options(), data);
  EXPECT_EQ(largest_difference(gloo.weights, threads.weights), 0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, DoubleBuffered,
                         testing::Values(ReplicaCase{"2bw", {1, 1}, 22}, ReplicaCase{"2bw", {1, 1, 1}, 23, "dropout"}, ReplicaCase{"2bw", {2, 1}, 22},
                                         ReplicaCase{"2bw", {2, 2}, 24}));

// --- Flush: as one device ----------------------------------------------------------------------------------------------------------------

struct FlushReplicaCase {
  std::string schedule;
  std::vector<int> shape;
};
void PrintTo(const FlushReplicaCase& c, std::ostream* out) { *out << c.schedule << "_" << fmt::format("{}", fmt::join(c.shape, "-")); }

class FlushedReplicas : public testing::TestWithParam<FlushReplicaCase> {};

TEST_P(FlushedReplicas, EqualOneDeviceAndGlooEqualsThreadsBitForBit) {
  const auto& [schedule, shape] = GetParam();
  const Model model = small_mlp();
  // 11 micro-batches, 4 a step, of which replicas get unequal shares; the last has 2 rows. With a test set, through the same pipe.
  const SourceFactory data = random_data(model, {11, 4, 2, 5}, /*with_test=*/true);
  TrainOptions options = replica_options();
  options.epochs = 2;
  const auto one = train_over("threads", model, plan_by_count(model, {1}, "1f1b", "flush", 4), options, data);
  const Plan plan = plan_by_count(model, shape, schedule, "flush", 4);
  const auto threads = train_over("threads", model, plan, options, data);
  EXPECT_LE(largest_difference(threads.weights, one.weights), 1e-5);
  const auto gloo = train_over("gloo", model, plan, options, data);
  EXPECT_EQ(gloo.losses, threads.losses);
  EXPECT_EQ(largest_difference(gloo.weights, threads.weights), 0);
  ASSERT_EQ(gloo.epochs.size(), 2U);
  EXPECT_EQ(gloo.epochs[1].test_loss, threads.epochs[1].test_loss);
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlushedReplicas,
                         testing::Values(FlushReplicaCase{"1f1b", {1, 1}}, FlushReplicaCase{"1f1b", {2, 1}}, FlushReplicaCase{"1f1b", {1, 2}},
                                         FlushReplicaCase{"gpipe", {2, 2}}, FlushReplicaCase{"1f1b", {3, 1}}, FlushReplicaCase{"gpipe", {2, 1, 1}},
                                         FlushReplicaCase{"data-parallel", {3}}, FlushReplicaCase{"model-parallel", {1, 1, 1}}));

// --- Sums that start during the backward -----------------------------------------------------------------------------------------------

/// Gradients of several buckets of 4 MB.
Model wide_mlp() {
  ModelBuilder b("wide_mlp");
  InputRef x = b.input("x", {6});
  const InputRef target = b.input("target", {}, at::kLong);
  for (int i = 0; i < 5; ++i) x = b.add("fc" + std::to_string(i), linear(i == 0 ? 6 : 900, 900), {x});
  x = b.add("head", linear(900, 5), {x});
  return b.finish(b.add("loss", cross_entropy(), {x, target}), x, target);
}

TEST(OverlappedSums, OfSeveralBucketsHaveTheBitsOfOneSum) {
  const Model model = wide_mlp();
  const SourceFactory data = random_data(model, {7, 4, 2, 5});
  for (const auto& [schedule, policy, shape, step] :
       {std::tuple("data-parallel", "flush", std::vector<int>{3}, 4), std::tuple("1f1b-async", "stash", std::vector<int>{2, 1}, 1)}) {
    const Plan plan = plan_by_count(model, shape, schedule, policy, step);
    TrainOptions options = replica_options();
    options.optimizer.learning_rate = 0.001;
    const auto threads = train_over("threads", model, plan, options, data), gloo = train_over("gloo", model, plan, options, data);
    EXPECT_EQ(gloo.losses, threads.losses) << schedule;
    EXPECT_EQ(largest_difference(gloo.weights, threads.weights), 0) << schedule;
  }
}

TEST(Recompute, ChangesNothingOverGlooWithReplicas) {
  const Model model = small_dropout();
  const SourceFactory data = random_data(model, {14, 4, 3, 5});
  TrainOptions options;
  options.optimizer.momentum = 0.9;
  options.collect_weights = true;
  options.threads_per_rank = 1;
  for (const auto& [schedule, policy, step] : {std::tuple("1f1b-async", "stash", 1), std::tuple("1f1b", "flush", 4)}) {
    Plan plan = plan_by_count(model, {2, 1, 1}, schedule, policy, step);
    const auto kept = train_over("gloo", model, plan, options, data);
    for (auto& stage : plan.stages) stage.recompute = true;
    const auto again = train_over("gloo", model, plan, options, data);
    EXPECT_EQ(again.losses, kept.losses) << schedule;
    EXPECT_EQ(largest_difference(again.weights, kept.weights), 0) << schedule;
  }
}

struct LateStepCase {
  std::string transport, policy;
  std::vector<int> shape;
  int step;
};
void PrintTo(const LateStepCase& c, std::ostream* out) { *out << fmt::format("{}_{}_{}_{}", c.transport, c.policy, fmt::join(c.shape, "-"), c.step); }

class LateSteps : public testing::TestWithParam<LateStepCase> {};

// Against one rank that reads the versions which the schedule names, and against what the schedule must name: a replicated stage's weights
// are late by one step more than without.
TEST_P(LateSteps, SumBesideTheNextForwardAndAreWhatTheScheduleSays) {
  const auto& [transport, policy, shape, step] = GetParam();
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {23, 4, 3, 5});
  const Plan plan = plan_by_count(model, shape, "1f1b-async", policy, step);
  TrainOptions options;
  options.optimizer.momentum = 0.9;
  options.optimizer.learning_rate = 0.02;
  options.collect_weights = options.collect_gradients = true;
  options.threads_per_rank = 1;
  options.overlap_reductions = true;
  options.steps = 7;
  const auto run = train_over(transport, model, plan, options, data);
  const VerifyReport report = compare_with_rework(run, rework_on_one_rank(model, plan, options, data));
  EXPECT_LE(report.loss_difference, 1e-4);
  EXPECT_LE(report.gradient_difference, 1e-4) << report.gradient_at << " at step " << report.gradient_step;
  EXPECT_LE(report.weight_difference, 1e-5);
  EXPECT_GT(run.gradients.size(), 0U);
}
INSTANTIATE_TEST_SUITE_P(Schedules, LateSteps,
                         testing::Values(LateStepCase{"threads", "stash", {2, 1}, 1}, LateStepCase{"gloo", "stash", {2, 1}, 1},
                                         LateStepCase{"gloo", "stash", {3}, 1}, LateStepCase{"gloo", "2bw", {2, 1}, 4},
                                         LateStepCase{"hybrid", "stash", {2, 2}, 1}, LateStepCase{"gloo", "stash", {1, 2, 1}, 3}));

TEST(LateStepsSettings, VerticalSyncIsRefused) {
  const Model model = small_mlp();
  TrainOptions options;
  options.overlap_reductions = true;
  EXPECT_THROW((void)run_training(model, plan_by_count(model, {2, 1}, "1f1b-async", "vertical-sync", 1), options, random_data(model, {8, 2, 2, 5})),
               UsageError);
}

}  // namespace
}  // namespace pipedream::test
