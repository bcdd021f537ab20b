#include "train_over.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipedream/comm/hybrid.hpp"
#include "ranks.hpp"

namespace pipedream::test {

TrainResult train_over(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& data,
                       std::chrono::milliseconds deadline) {
  if (transport == "threads") return run_training(model, plan, options, data);
  TrainResult result;
  const auto errors = run_processes(
      transport, plan.num_ranks(),
      [&](const std::vector<std::shared_ptr<ControlGroup>>& groups) {
        TrainObserver observer;
        TrainResult own = train_ranks(model, plan, options, data, observer, make_hybrid_transports(groups, "gloo"), nullptr);
        if (groups[0]->rank() == 0) result = std::move(own);
      },
      deadline);
  EXPECT_THAT(errors, testing::Each(""));
  return result;
}

std::vector<std::string> train_errors(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options,
                                      const SourceFactory& data, std::chrono::milliseconds deadline) {
  if (transport == "threads") {
    try {
      (void)run_training(model, plan, options, data);
      return {""};
    } catch (const std::exception& error) {
      return {error.what()};
    }
  }
  return run_processes(
      transport, plan.num_ranks(),
      [&](const std::vector<std::shared_ptr<ControlGroup>>& groups) {
        TrainObserver observer;
        try {
          (void)train_ranks(model, plan, options, data, observer, make_hybrid_transports(groups, "gloo"), nullptr);
        } catch (const std::exception& error) {
          (void)groups[0]->abort(error.what());
          throw;
        }
      },
      deadline);
}

}  // namespace pipedream::test
