#include "pipedream/report/chakra.hpp"

#include <gtest/gtest.h>

#include <map>

#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

/// A reader of protobuf's wire form, apart from the writer: fields as (number, value or bytes).
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string bytes;
};
std::uint64_t varint(const std::string& text, std::size_t& at) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.at(at++));
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80U) return value;
  }
}
std::vector<Field> fields(const std::string& message) {
  std::vector<Field> result;
  for (std::size_t at = 0; at < message.size();) {
    const std::uint64_t key = varint(message, at);
    Field field{key >> 3U, 0, {}};
    const std::uint64_t value = varint(message, at);
    if ((key & 7U) == 2) {
      field.bytes = message.substr(at, value);
      at += value;
    } else {
      field.value = value;
    }
    result.push_back(field);
  }
  return result;
}
std::vector<std::string> messages(const std::string& file) {
  std::vector<std::string> result;
  for (std::size_t at = 0; at < file.size();) {
    const std::uint64_t size = varint(file, at);
    result.push_back(file.substr(at, size));
    at += size;
  }
  return result;
}

TEST(Chakra, WritesComputationsTransfersAndTheirDependencies) {
  ScheduleRequest request;
  request.name = "1f1b";
  request.chunk_ranks = {{0}, {1}};
  request.micro_batches = request.step_micro_batches = 2;
  SimulationOptions options;
  options.chunks = {ChunkCosts{1.5, 1, 1}};
  options.edge_bytes = {4096};
  const std::vector<std::string> files = chakra_traces(make_schedule(request), options);
  ASSERT_EQ(files.size(), 2U);
  const std::vector<std::string> nodes = messages(files[0]);
  EXPECT_EQ(fields(nodes[0])[0].bytes, "0.0.4");
  std::map<std::string, std::vector<Field>> by_name;
  for (std::size_t i = 1; i < nodes.size(); ++i) by_name[fields(nodes[i])[1].bytes] = fields(nodes[i]);
  const auto& forward = by_name.at("0F0v0");
  EXPECT_EQ(forward[2].value, 4U);   // COMP_NODE
  EXPECT_EQ(forward[3].number, 7U);  // duration_micros
  EXPECT_EQ(forward[3].value, 1500U);
  const auto& send = by_name.at("0SEND_F0>1");
  EXPECT_EQ(send[2].value, 5U);                    // COMM_SEND_NODE
  EXPECT_EQ(send[3].bytes, std::string(1, '\0'));  // after node 0 in the list
  EXPECT_EQ(send[4].bytes, std::string(1, '\0'));  // and with its data
  EXPECT_EQ(fields(send[5].bytes)[0].bytes, "comm_size");
  EXPECT_EQ(fields(send[5].bytes)[1].value, 4096U);
}

}  // namespace
}  // namespace pipedream
