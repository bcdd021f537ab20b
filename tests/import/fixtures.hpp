#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pipedream::testing {

/// Path of a file in tests/import/fixtures.
std::string fixture(const std::string& name);
std::string read_fixture(const std::string& name);

struct ZipOptions {
  bool zip64 = false;            ///< sizes and offsets in extra fields, and a zip64 end record
  bool data_descriptor = false;  ///< sizes and CRC of the local headers left empty and written behind the data
  bool deflate = false;
  std::string comment;
};

/// A zip archive, written after the format's description and not by the code under test.
std::string make_zip(const std::vector<std::pair<std::string, std::string>>& entries, const ZipOptions& options = {});

/// The bytes with `changes` random edits: a byte flipped, overwritten, a piece removed, doubled or cut off at the end.
std::string mutate(std::string bytes, std::uint64_t seed, int changes);

}  // namespace pipedream::testing
