#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "pipedream/model/import/program.hpp"
#include "pipedream/model/import/zip_archive.hpp"

/// Files of torch.export.save (".pt2"): a zip archive with the program as JSON and every storage as raw bytes.
namespace pipedream {

/// A tensor of the file: a window on one storage.
struct StoredTensor {
  std::string name;  ///< the state_dict key
  bool is_parameter = false;
  bool requires_grad = false;
  ElementType element = ElementType::Unknown;
  std::vector<std::int64_t> sizes, strides;  ///< in elements
  std::int64_t offset = 0;                   ///< in elements
  std::string storage;                       ///< path of the storage in the archive
  bool operator==(const StoredTensor&) const = default;
  [[nodiscard]] std::int64_t elements() const;
  /// Elements of the storage that the tensor reaches: 1 + offset + the distance to its last element; 0 if it has none.
  [[nodiscard]] std::int64_t reach() const;
};

struct Pt2File {
  Program program;
  std::vector<StoredTensor> weights;    ///< parameters and persistent buffers: the state_dict, aliases included
  std::vector<StoredTensor> constants;  ///< buffers outside the state_dict, and constants
  std::map<std::string, ZipData> storages;
  bool has_values = true;  ///< false: saved from the meta device, every storage is empty
};

struct Pt2Options {
  std::string model;  ///< of an archive that holds several; empty: the only one
};

/// Reads a file completely and checks all of it: CRCs, the JSON, and that every tensor lies inside its storage. Storages are not copied.
/// @throws InputError naming file and place, with a remedy; also for files of other kinds and of older versions of torch
[[nodiscard]] Pt2File read_pt2(const std::shared_ptr<const MappedFile>& file, const Pt2Options& options = {});

/// The program of a text in the format of models/NAME.json. `place` leads errors.
[[nodiscard]] Program program_from_json(std::string_view text, const std::string& place);

/// Element type of a code of the format (which is not c10's). Unknown if there is none.
[[nodiscard]] ElementType element_of_code(std::int64_t code);

}  // namespace pipedream
