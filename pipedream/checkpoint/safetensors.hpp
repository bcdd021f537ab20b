#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipedream/core/mapped_file.hpp"

/// Weight files in the format of Hugging Face's safetensors: 8 bytes length of the header, a JSON header, raw little-endian data. PyTorch reads them
/// with safetensors.torch.load_file. Free of torch.
namespace pipedream {

struct SafetensorsEntry {
  std::string name;
  std::string type;  ///< "F32", "I64", "BOOL", "BF16", ...
  std::vector<std::int64_t> shape;
  std::string_view bytes;  ///< row by row
};

/// Bytes per element of a type; 0 for a type this program does not know.
[[nodiscard]] int safetensors_element_bytes(std::string_view type);

/// A file mapped into memory; the entries point into it.
class SafetensorsFile {
 public:
  /// Checks everything: lengths, names, types, that every tensor has exactly the bytes its shape needs, that the data has neither gaps nor overlaps.
  /// @throws InputError with file, JSON pointer and reason
  explicit SafetensorsFile(std::shared_ptr<const MappedFile> file);
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path) { return SafetensorsFile(MappedFile::open(path)); }

  /// In the order of the data.
  [[nodiscard]] const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  [[nodiscard]] const SafetensorsEntry* find(std::string_view name) const;
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const std::shared_ptr<const MappedFile>& file() const { return file_; }

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Writes a file whole or not at all; the data is streamed, not collected in memory.
/// @throws InputError naming the file and the reason
void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata = {});

/// True if the bytes begin like a file of this kind.
[[nodiscard]] bool looks_like_safetensors(std::string_view bytes);

}  // namespace pipedream
