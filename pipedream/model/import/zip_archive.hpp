#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipedream/core/mapped_file.hpp"

namespace pipedream {

/// One file of a zip archive, as its central directory describes it.
struct ZipEntry {
  std::string name;
  std::uint64_t offset = 0;       ///< of its bytes in the archive
  std::uint64_t stored_size = 0;  ///< in the archive
  std::uint64_t size = 0;         ///< unpacked
  std::uint32_t crc = 0;
  bool deflated = false;
  bool operator==(const ZipEntry&) const = default;
};

/// The bytes of an entry and what keeps them alive: the mapped archive, or a buffer of their own if they were compressed.
struct ZipData {
  std::string_view bytes;
  std::shared_ptr<const void> owner;
};

/// Reads zip archives as PyTorch writes them: entries stored, so that weights can be used where they lie in the mapped file; zip64; sizes taken
/// from the central directory (local headers may leave them to a data descriptor). Deflated entries are read too, at the price of a copy.
/// Nothing in the file is trusted: every offset and size is checked, and every entry's CRC when it is read.
/// Format: PKWARE APPNOTE 6.3.10.
class ZipArchive {
 public:
  /// @throws InputError if this is no readable zip archive: truncated, encrypted, split, entries outside the file, names twice or with ".."
  explicit ZipArchive(std::shared_ptr<const MappedFile> file);

  [[nodiscard]] const std::string& name() const { return file_->name(); }
  /// In the order of the central directory.
  [[nodiscard]] const std::vector<ZipEntry>& entries() const { return entries_; }
  [[nodiscard]] const ZipEntry* find(std::string_view name) const;
  /// @throws InputError naming the entry if its bytes do not have the recorded CRC or cannot be unpacked
  [[nodiscard]] ZipData read(const ZipEntry& entry) const;

 private:
  std::shared_ptr<const MappedFile> file_;
  std::vector<ZipEntry> entries_;
};

/// True if the bytes begin like a zip archive.
[[nodiscard]] bool looks_like_zip(std::string_view bytes);

}  // namespace pipedream
