#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>

#include "train_over.hpp"

namespace pipedream::test {
namespace {

/// One random run: any shape, schedule, policy, numbers that do not divide.
struct RandomRun {
  Model model;
  Plan plan;
  DataShape data;
  std::string text;
};

RandomRun random_run(std::mt19937& engine) {
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine); };
  RandomRun run;
  std::vector<std::string> models{"mlp", "residual", "dropout"};
  const std::string name = models[static_cast<std::size_t>(any(0, 2))];
  std::vector<int> shape;
  for (int ranks = any(1, 5); ranks > 0;) {
    shape.push_back(any(1, std::min(3, ranks)));
    ranks -= shape.back();
  }
  const int all = std::accumulate(shape.begin(), shape.end(), 0);
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"1f1b-async", "stash"},     {"1f1b-async", "vertical-sync"}, {"1f1b-async", "2bw"}, {"1f1b", "flush"}, {"gpipe", "flush"},
      {"model-parallel", "flush"}, {"data-parallel", "flush"},      {"zb-h1", "flush"},    {"asp", "stash"}};
  const auto& [schedule, policy] = kinds[static_cast<std::size_t>(any(0, 8))];
  if (schedule == "data-parallel" || schedule == "asp") shape = {all};
  if (schedule == "model-parallel" || schedule == "zb-h1") shape.assign(shape.size(), 1);
  // Replicas of a batch norm keep statistics of their own, which is not what is compared here.
  const bool has_replicas = std::any_of(shape.begin(), shape.end(), [](int r) { return r > 1; });
  run.model = name == "dropout" ? small_dropout() : name == "residual" && !has_replicas ? small_residual() : small_mlp();
  int step = policy == "stash" || policy == "vertical-sync" ? 1 : any(1, 7);
  if (policy == "2bw") step = std::max(step, all);
  run.plan = plan_by_count(run.model, shape, schedule, policy, step);
  if (schedule != "zb-h1")
    for (auto& stage : run.plan.stages) stage.recompute = any(0, 3) == 0;
  run.data = {any(1, 19), any(1, 5), 1, 5};
  run.data.last_rows = any(1, static_cast<int>(run.data.rows));
  run.text = fmt::format("{} {} {} {} {} per step, {} micro-batches of {} rows, the last {}", run.model.name, schedule, policy, fmt::join(shape, "-"),
                         step, run.data.micro_batches, run.data.rows, run.data.last_rows);
  return run;
}

TEST(RandomRuns, EndAndAreTheSameOverGlooAsWithThreads) {
  const char* wanted = std::getenv("PIPEDREAM_RANDOM_RUNS");  // 200 in the nightly set
  const int count = wanted == nullptr ? 20 : std::atoi(wanted);
  for (int seed = 0; seed < count; ++seed) {
    std::mt19937 engine(static_cast<unsigned>(seed));
    const RandomRun run = random_run(engine);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, run.text));
    TrainOptions options;
    options.seed = static_cast<std::uint64_t>(seed);
    options.optimizer.momentum = 0.9;
    options.collect_weights = true;
    options.threads_per_rank = 1;
    options.deadline_ms = 20000;
    options.epochs = 1 + seed % 2;
    const SourceFactory data = random_data(run.model, run.data, seed % 3 == 0);
    const auto threads = train_over("threads", run.model, run.plan, options, data);
    const auto gloo = train_over(seed % 2 == 0 ? "gloo" : "hybrid", run.model, run.plan, options, data);
    if (run.plan.schedule != "asp" || run.plan.num_ranks() == 1) {  // else the order of steps is the race's
      EXPECT_EQ(gloo.losses, threads.losses);
      EXPECT_EQ(largest_difference(gloo.weights, threads.weights), 0);
    }
    EXPECT_EQ(gloo.steps, threads.steps);
    EXPECT_EQ(gloo.training_bytes_sent, threads.training_bytes_sent);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace pipedream::test
