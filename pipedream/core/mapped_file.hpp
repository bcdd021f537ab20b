#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace pipedream {

/// A file in memory, read only and mapped: big weight files cost address space, not a copy. Handles share it.
class MappedFile {
 public:
  /// @throws InputError naming the file if it cannot be opened, is a folder or cannot be mapped
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  /// Bytes already at hand, under the name that errors shall use.
  static std::shared_ptr<const MappedFile> from_bytes(std::string bytes, std::string name);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  [[nodiscard]] std::string_view bytes() const { return bytes_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  MappedFile() = default;
  std::string name_;
  std::string owned_;
  std::string_view bytes_;
  void* mapping_ = nullptr;
};

}  // namespace pipedream
