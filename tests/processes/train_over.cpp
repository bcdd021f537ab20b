#include "train_over.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranks.hpp"

namespace pipedream::test {

TrainResult train_over(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& data,
                       std::chrono::milliseconds deadline) {
  if (transport == "threads") return run_training(model, plan, options, data);
  TrainResult result;
  const auto errors = run_ranks(
      transport, plan.num_ranks(),
      [&](Transport& one) {
        TrainObserver observer;
        TrainResult own = train_rank(model, plan, options, data, observer, one, nullptr);
        if (one.rank() == 0) result = std::move(own);
      },
      deadline);
  EXPECT_THAT(errors, testing::Each(""));
  return result;
}

std::vector<std::string> train_errors(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options,
                                      const SourceFactory& data, std::chrono::milliseconds deadline) {
  return run_ranks(
      transport, plan.num_ranks(),
      [&](Transport& one) {
        TrainObserver observer;
        (void)train_rank(model, plan, options, data, observer, one, nullptr);
      },
      deadline);
}

}  // namespace pipedream::test
