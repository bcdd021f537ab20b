#include "pipedream/comm/transport.hpp"

#include <fmt/format.h>

namespace pipedream {

std::string describe(const MessageKey& key) {
  if (key.target_chunk == kWeightServer) return fmt::format("the {} micro-batch {}", key.gradient ? "gradient of" : "weights after", key.micro_batch);
  return fmt::format("the {} of micro-batch {} from stage {}", key.gradient ? "gradient" : "activation", key.micro_batch,
                     key.gradient ? key.target_chunk : key.source_chunk);
}

}  // namespace pipedream
