#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace pipedream {

/// An array of unsigned bytes as the IDX format of MNIST stores it, row by row.
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file (bytes 0 0 type rank, one big-endian 32-bit size per dimension, values), plain or compressed with gzip.
/// @param rank what is expected: 3 for images, 1 for labels
/// @throws InputError for whatever is no such file: the message says what is wrong and what to do
[[nodiscard]] IdxArray load_idx(const std::filesystem::path& file, int rank);

}  // namespace pipedream
