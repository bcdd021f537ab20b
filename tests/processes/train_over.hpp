#pragma once

#include <string>

#include "support.hpp"

namespace pipedream::test {

/// Trains by threads ("threads"), or over Gloo on 127.0.0.1 with a transport a rank as processes have it ("gloo").
[[nodiscard]] TrainResult train_over(const std::string& transport, const Model& model, const Plan& plan, const TrainOptions& options,
                                     const SourceFactory& data);

}  // namespace pipedream::test
