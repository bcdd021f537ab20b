#include "pipedream/runtime/trainer.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/schedule/placement.hpp"
#include "reenactment.hpp"
#include "support.hpp"

namespace pipedream::test {
namespace {

Model model_named(const std::string& name) {
  if (name == "mlp") return small_mlp();
  if (name == "residual") return small_residual();
  if (name == "dropout") return small_dropout();
  return small_tied();
}

std::vector<std::vector<std::string>> layers_of(const Plan& plan) {
  std::vector<std::vector<std::string>> stages;
  for (const auto& stage : plan.stages) stages.push_back(stage.layers);
  return stages;
}

TrainOptions options_with(const std::string& optimizer) {
  TrainOptions options;
  options.seed = 7;
  options.optimizer.name = optimizer;
  options.optimizer.learning_rate = optimizer == "sgd" ? 0.05 : 0.01;
  options.optimizer.momentum = optimizer == "sgd" ? 0.9 : 0;
  options.optimizer.weight_decay = 0.01;
  // With the usual 1e-8 a gradient that is nothing but rounding makes Adam take a whole step, in a direction of chance.
  options.optimizer.epsilon = 1e-3;
  return options;
}

// --- Flush schedules equal one device -------------------------------------------------------------------------------------------------

struct FlushCase {
  std::string model, schedule;
  int stages;
};
void PrintTo(const FlushCase& c, std::ostream* out) { *out << c.model << "_" << c.schedule << "_" << c.stages; }

class FlushEqualsOneDevice : public testing::TestWithParam<FlushCase> {};

TEST_P(FlushEqualsOneDevice, InLossesAndWeights) {
  const auto& [name, schedule, stages] = GetParam();
  const Model model = model_named(name);
  // 11 micro-batches, 4 a step: two whole steps and one of three, whose last micro-batch has 2 rows instead of 4.
  const SourceFactory data = random_data(model, {11, 4, 2, 5});
  TrainOptions options = options_with("sgd");
  options.epochs = 2;
  const auto one = run_training(model, plan_by_count(model, {1}, schedule, "flush", 4), options, data);
  const auto many =
      run_training(model, plan_by_count(model, std::vector<int>(static_cast<std::size_t>(stages), 1), schedule, "flush", 4), options, data);
  ASSERT_EQ(one.losses.size(), 22U);
  // Gradients of a tied weight in two stages are summed in another order than on one device.
  const double tolerance = name == "tied" ? 1e-6 : 0;
  for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], tolerance * 10) << "micro-batch " << i;
  EXPECT_LE(largest_difference(many.weights, one.weights), tolerance * 10);
  EXPECT_EQ(one.steps, 6);
}

std::vector<FlushCase> flush_cases() {
  std::vector<FlushCase> cases;
  for (const char* model : {"mlp", "residual", "dropout", "tied"})
    for (const char* schedule : {"1f1b", "gpipe"})
      for (int stages : {2, 3, 4}) cases.push_back({model, schedule, stages});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, FlushEqualsOneDevice, testing::ValuesIn(flush_cases()));

TEST(FlushSchedules, OfSeveralChunksAndSplitBackwardsEqualOneDevice) {
  struct Case {
    const char* schedule;
    int chunks;
  };
  for (const auto& [schedule, chunks] : {Case{"zb-h1", 1}, Case{"zb-h2", 1}, Case{"zb-auto", 1}, Case{"interleaved", 2}, Case{"looped-bfs", 2},
                                         Case{"zb-v", 2}, Case{"v-half", 2}, Case{"v-min", 2}, Case{"dualpipe-v", 2}}) {
    for (const char* name : {"mlp", "residual", "dropout"}) {
      const Model model = model_named(name);
      const SourceFactory data = random_data(model, {17, 4, 2, 5});
      const auto one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 6), options_with("sgd"), data);
      Plan plan = plan_by_count(model, std::vector<int>(static_cast<std::size_t>(2 * chunks), 1), schedule, "flush", 6);
      plan.chunks = chunks;
      const auto places = place_chunks(find_schedule(schedule).placement, chunks, {1, 1});
      for (std::size_t k = 0; k < places.size(); ++k) plan.stages[k].ranks = places[k];
      const auto many = run_training(model, plan, options_with("sgd"), data);
      // Weight parts may run in another order than the backwards of one device: the sums are the same up to rounding.
      for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5) << schedule << " " << name << " " << i;
      EXPECT_LE(largest_difference(many.weights, one.weights), 1e-5) << schedule << " " << name;
    }
  }
}

TEST(OneDevice, EqualsTorchWithGradientAccumulation) {
  for (const char* optimizer : {"sgd", "adam", "adamw"}) {
    const Model model = small_residual();
    const SourceFactory data = random_data(model, {11, 4, 2, 5});
    const TrainOptions options = options_with(optimizer);
    const Plan plan = plan_by_count(model, {1}, "1f1b", "flush", 4);
    const auto ours = run_training(model, plan, options, data);
    const auto source = data({});
    const auto theirs = reenact(model, {layers_of(plan), [](int, int i) { return i / 4; }, 4}, options, *source);
    EXPECT_LE(largest_difference(ours.weights, theirs.weights), 2e-5) << optimizer;
    for (std::size_t i = 0; i < ours.losses.size(); ++i) EXPECT_NEAR(ours.losses[i], theirs.losses[i], 1e-5) << optimizer << " micro-batch " << i;
  }
}

// --- Asynchronous 1F1B with stashed weights equals its re-enactment --------------------------------------------------------------------

/// PipeDream: stage k of p has done max(0, i - (p - 1 - k)) steps when micro-batch i runs forward, and its backward uses the same weights.
int stash_version(int stages, int stage, int micro_batch) { return std::max(0, micro_batch - (stages - 1 - stage)); }

struct StashCase {
  std::string model, optimizer;
  int stages;
};
void PrintTo(const StashCase& c, std::ostream* out) { *out << c.model << "_" << c.optimizer << "_" << c.stages; }

class StashEqualsReenactment : public testing::TestWithParam<StashCase> {};

TEST_P(StashEqualsReenactment, AfterManySteps) {
  const auto& [name, optimizer, stages] = GetParam();
  const Model model = model_named(name);
  const SourceFactory data = random_data(model, {23, 4, 3, 5});
  const TrainOptions options = options_with(optimizer);
  const Plan plan = plan_by_count(model, std::vector<int>(static_cast<std::size_t>(stages), 1), "1f1b-async", "stash", 1);
  const auto ours = run_training(model, plan, options, data);
  const auto source = data({});
  const auto theirs = reenact(model, {layers_of(plan), [p = stages](int k, int i) { return stash_version(p, k, i); }, 1}, options, *source);
  ASSERT_EQ(ours.losses.size(), theirs.losses.size());
  for (std::size_t i = 0; i < ours.losses.size(); ++i) EXPECT_NEAR(ours.losses[i], theirs.losses[i], 2e-4) << "micro-batch " << i;
  EXPECT_LE(largest_difference(ours.weights, theirs.weights), 2e-4);
  // Stage k holds its lag + 1 versions, p - k.
  for (int k = 0; k < stages; ++k) EXPECT_EQ(ours.ranks[static_cast<std::size_t>(k)].versions, stages - k);
}

std::vector<StashCase> stash_cases() {
  std::vector<StashCase> cases;
  for (const char* model : {"mlp", "residual", "dropout"})
    for (const char* optimizer : {"sgd", "adam"})
      for (int stages : {2, 3, 4}) cases.push_back({model, optimizer, stages});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, StashEqualsReenactment, testing::ValuesIn(stash_cases()));

TEST(StashReenactment, WouldCatchAVersionOffByOne) {
  // The oracle must be able to fail: with the lag of one stage wrong by one it is far outside the tolerance above.
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {23, 4, 4, 5});
  const TrainOptions options = options_with("sgd");
  const Plan plan = plan_by_count(model, {1, 1, 1}, "1f1b-async", "stash", 1);
  const auto ours = run_training(model, plan, options, data);
  for (int wrong = 0; wrong < 3; ++wrong) {
    const auto source = data({});
    const auto theirs = reenact(
        model, {layers_of(plan), [wrong](int k, int i) { return std::max(0, stash_version(3, k, i) - (k == wrong ? 1 : 0)); }, 1}, options, *source);
    EXPECT_GT(largest_difference(ours.weights, theirs.weights), 2e-3) << "stage " << wrong;
  }
}

TEST(Stash, OneMoreInFlightIsOneMoreLagAtTheStartOfThePipe) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {23, 4, 4, 5});
  TrainOptions options = options_with("sgd");
  options.extra_in_flight = 1;
  const Plan plan = plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1);
  const auto ours = run_training(model, plan, options, data);
  const auto source = data({});
  const auto theirs = reenact(model, {layers_of(plan), [](int k, int i) { return std::max(0, k == 0 ? i - 2 : i); }, 1}, options, *source);
  EXPECT_LE(largest_difference(ours.weights, theirs.weights), 2e-4);
}

TEST(Training, RecomputationChangesNothing) {
  for (const char* name : {"residual", "dropout"}) {
    const Model model = model_named(name);
    const SourceFactory data = random_data(model, {9, 4, 4, 5});
    Plan plan = plan_by_count(model, {1, 1}, "1f1b", "flush", 3);
    const auto plain = run_training(model, plan, options_with("sgd"), data);
    for (auto& stage : plan.stages) stage.recompute = true;
    const auto recomputed = run_training(model, plan, options_with("sgd"), data);
    EXPECT_EQ(largest_difference(recomputed.weights, plain.weights), 0) << name;
  }
}

TEST(Training, GradientClippingSeesAllStages) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {8, 4, 4, 5});
  TrainOptions options = options_with("sgd");
  options.clip_norm = 0.05;
  const auto one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 4), options, data);
  const auto three = run_training(model, plan_by_count(model, {1, 1, 1}, "1f1b", "flush", 4), options, data);
  EXPECT_LE(largest_difference(three.weights, one.weights), 1e-6);
  options.clip_norm = 0;
  const auto unclipped = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 4), options, data);
  EXPECT_GT(largest_difference(unclipped.weights, one.weights), 1e-3);
}

TEST(Training, ATiedWeightCountsOnceInTheNorm) {
  const Model model = small_tied();
  const SourceFactory data = random_data(model, {8, 4, 4, 5});
  TrainOptions options = options_with("sgd");
  options.clip_norm = 0.05;
  const auto one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 4), options, data);
  const auto two = run_training(model, plan_by_count(model, {1, 1}, "1f1b", "flush", 4), options, data);
  EXPECT_LE(largest_difference(two.weights, one.weights), 1e-5);
}

TEST(Training, ATieAcrossStagesNeedsAFlush) {
  const Model model = small_tied();
  try {
    (void)run_training(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options_with("sgd"), random_data(model, {8, 4, 4, 5}));
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "the layers 'embedding' and 'head' share a weight and lie in different stages, which needs a schedule that flushes (policy is stash)");
  }
}

TEST(Training, StepsLimitEndsWithinAnEpochAndGoesOnInTheNext) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {10, 4, 4, 5});
  TrainOptions options = options_with("sgd");
  options.steps = 13;
  const auto result = run_training(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options, data);
  EXPECT_EQ(result.steps, 13);
  EXPECT_EQ(result.losses.size(), 13U);
  EXPECT_EQ(result.epochs.size(), 2U);
}

TEST(Training, EvaluationRunsThroughTheSamePipe) {
  const Model model = small_residual();
  const SourceFactory data = random_data(model, {10, 4, 2, 5}, /*with_test=*/true);
  const auto one = run_training(model, plan_by_count(model, {1}, "1f1b", "flush", 5), options_with("sgd"), data);
  const auto three = run_training(model, plan_by_count(model, {1, 1, 1}, "1f1b", "flush", 5), options_with("sgd"), data);
  ASSERT_TRUE(one.epochs[0].test_loss && three.epochs[0].test_loss && three.epochs[0].test_accuracy);
  EXPECT_EQ(*three.epochs[0].test_loss, *one.epochs[0].test_loss);
  EXPECT_EQ(*three.epochs[0].test_accuracy, *one.epochs[0].test_accuracy);
}

TEST(Training, TheTraceHoldsEveryActionInOrder) {
  const Model model = small_mlp();
  const SourceFactory data = random_data(model, {6, 4, 4, 5});
  const auto result = run_training(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options_with("sgd"), data);
  int forwards = 0, backwards = 0, steps = 0;
  double last_end = 0;
  int last_rank = 0;
  for (const auto& timed : result.trace.actions) {
    if (timed.rank != last_rank) last_end = 0;
    last_rank = timed.rank;
    EXPECT_GE(timed.start_ms, last_end);
    last_end = timed.end_ms;
    forwards += timed.action.kind == ActionKind::Forward;
    backwards += timed.action.kind == ActionKind::Backward;
    steps += timed.action.kind == ActionKind::Step;
  }
  EXPECT_EQ(forwards, 12);
  EXPECT_EQ(backwards, 12);
  EXPECT_EQ(steps, 12);
}

// --- What goes wrong ends everything, with one message ----------------------------------------------------------------------------------

std::string failure_of(const Model& model, const Plan& plan, TrainOptions options, const SourceFactory& data) {
  try {
    (void)run_training(model, plan, options, data);
  } catch (const RankError& error) {
    return error.what();
  }
  return "no failure";
}

TEST(Failure, ALayerThatThrowsStopsAllRanksAndIsNamed) {
  ModelBuilder b("bad");
  const InputRef x = b.input("x", {6});
  const InputRef target = b.input("target", {}, at::kLong);
  InputRef y = b.add("fc", linear(6, 5), {x});
  auto count = std::make_shared<int>(0);
  y = b.add("thrower", function("Thrower", std::function<at::Tensor(const Tensors&)>([count](const Tensors& in) -> at::Tensor {
                                  if (++*count == 4) throw std::runtime_error("no more");
                                  return in[0] * 1.0;
                                })),
            {y});
  const Model model = b.finish(b.add("loss", cross_entropy(), {y, target}), y, target);
  EXPECT_EQ(failure_of(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options_with("sgd"), random_data(model, {8, 4, 4, 5})),
            "rank 1 failed in 1F3v3 (stage 1, micro-batch 3): no more");
}

TEST(Failure, ALossThatIsNotANumberIsReported) {
  const Model model = small_mlp();
  TrainOptions options = options_with("sgd");
  options.optimizer.learning_rate = 9e5;
  const std::string text = failure_of(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options, random_data(model, {20, 4, 4, 5}));
  EXPECT_THAT(text, testing::ContainsRegex("^the loss of micro-batch [0-9]+ is (-?nan|-?inf)$"));
}

TEST(Failure, ARankThatIsTooSlowNamesWhoWaitedForWhat) {
  ModelBuilder b("slow");
  const InputRef x = b.input("x", {6});
  const InputRef target = b.input("target", {}, at::kLong);
  InputRef y = b.add("fc", linear(6, 5), {x});
  y = b.add("sleeper", function("Sleeper", std::function<at::Tensor(const Tensors&)>([](const Tensors& in) -> at::Tensor {
                                  std::this_thread::sleep_for(std::chrono::milliseconds(700));
                                  return in[0] * 1.0;
                                })),
            {y});
  const InputRef z = b.add("fc2", linear(5, 5), {y});
  const InputRef w = b.add("fc3", linear(5, 5), {z});
  const Model model = b.finish(b.add("loss", cross_entropy(), {w, target}), w, target);
  TrainOptions options = options_with("sgd");
  options.deadline_ms = 200;
  const std::string text = failure_of(model, plan_by_count(model, {1, 1}, "1f1b-async", "stash", 1), options, random_data(model, {8, 4, 4, 5}));
  EXPECT_THAT(text, testing::StartsWith(
                        "rank 1 waited 200 ms for the activation of micro-batch 0 from stage 0 (rank 0), which did not come\nrank 0: running 0F0"));
}

TEST(Failure, APlanOfAnotherModelIsRefused) {
  const Model model = small_mlp(), other = small_residual();
  try {
    (void)run_training(model, plan_by_count(other, {1, 1}, "1f1b-async", "stash", 1), options_with("sgd"), random_data(model, {8, 4, 4, 5}));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "plan: stage 0 names the layer 'stem', which the model small_mlp does not have");
  }
}

}  // namespace
}  // namespace pipedream::test
