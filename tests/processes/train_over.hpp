#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "support.hpp"

namespace pipedream::test {

/// Trains by threads ("threads"), or over Gloo on 127.0.0.1 with a transport a rank as processes have it ("gloo"), whose deadline is the last
/// argument.
[[nodiscard]] TrainResult train_over(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options,
                                     const SourceFactory& data, std::chrono::milliseconds deadline = std::chrono::seconds(20));
/// The same where it goes wrong: what each rank threw.
[[nodiscard]] std::vector<std::string> train_errors(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options,
                                                    const SourceFactory& data, std::chrono::milliseconds deadline = std::chrono::seconds(20));

}  // namespace pipedream::test
