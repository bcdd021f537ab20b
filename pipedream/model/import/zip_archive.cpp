#include "pipedream/model/import/zip_archive.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::uint32_t kLocalHeader = 0x04034b50, kCentralHeader = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50;
constexpr std::size_t kLocalHeaderSize = 30, kCentralHeaderSize = 46, kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20;
/// What an unpacked entry may take; stored entries are not unpacked and may be larger.
constexpr std::uint64_t kLargestUnpacked = 1ULL << 30;
constexpr const char* kHint = "the file is damaged or was not copied completely: save or copy it again";

/// Little-endian numbers of a text; nothing outside it can be read.
class Bytes {
 public:
  Bytes(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  [[nodiscard]] std::uint64_t number(std::uint64_t at, int width) const {
    if (at > bytes_.size() || bytes_.size() - at < static_cast<std::size_t>(width)) fail("ends in the middle of a header");
    std::uint64_t result = 0;
    for (int i = width - 1; i >= 0; --i) result = result << 8 | static_cast<unsigned char>(bytes_[at + static_cast<std::uint64_t>(i)]);
    return result;
  }
  [[nodiscard]] std::uint16_t u16(std::uint64_t at) const { return static_cast<std::uint16_t>(number(at, 2)); }
  [[nodiscard]] std::uint32_t u32(std::uint64_t at) const { return static_cast<std::uint32_t>(number(at, 4)); }
  [[nodiscard]] std::uint64_t u64(std::uint64_t at) const { return number(at, 8); }
  [[nodiscard]] std::string_view text(std::uint64_t at, std::uint64_t size) const {
    if (at > bytes_.size() || bytes_.size() - at < size) fail("ends in the middle of an entry");
    return bytes_.substr(at, size);
  }
  [[nodiscard]] std::uint64_t size() const { return bytes_.size(); }
  [[noreturn]] void fail(const std::string& what) const { throw InputError(file_, "zip archive " + what, kHint); }

 private:
  std::string_view bytes_;
  const std::string& file_;
};

struct Directory {
  std::uint64_t offset = 0, size = 0, entries = 0, end = 0;
};

/// The end record is the last thing in the file but for a comment of up to 65535 bytes.
std::uint64_t find_end(const Bytes& bytes) {
  if (bytes.size() < kEndSize) bytes.fail("is too short");
  const std::uint64_t last = bytes.size() - kEndSize;
  const std::uint64_t first = last > 65535 ? last - 65535 : 0;
  for (std::uint64_t at = last + 1; at-- > first;) {
    if (bytes.u32(at) == kEnd && at + kEndSize + bytes.u16(at + 20) == bytes.size()) return at;
  }
  bytes.fail("has no end record");
}

Directory find_directory(const Bytes& bytes) {
  const std::uint64_t end = find_end(bytes);
  Directory result{bytes.u32(end + 16), bytes.u32(end + 12), bytes.u16(end + 10), end};
  const bool is_64 = result.entries == 0xffff || result.size == 0xffffffff || result.offset == 0xffffffff;
  if (is_64 && end >= kEnd64LocatorSize && bytes.u32(end - kEnd64LocatorSize) == kEnd64Locator) {
    const std::uint64_t end64 = bytes.u64(end - kEnd64LocatorSize + 8);
    if (end64 > end || end - end64 < kEnd64Size || bytes.u32(end64) != kEnd64) bytes.fail("has a wrong zip64 end record");
    result = {bytes.u64(end64 + 48), bytes.u64(end64 + 40), bytes.u64(end64 + 32), end64};
  }
  if (result.offset > result.end || result.end - result.offset < result.size) bytes.fail("has its directory outside the file");
  if (result.entries > result.size / kCentralHeaderSize) bytes.fail("names more entries than its directory can hold");
  return result;
}

/// Sizes and offset that did not fit 32 bits stand in the extra field 1, in this order, those that did not fit only.
void read_zip64_extra(const Bytes& bytes, std::uint64_t at, std::uint64_t extra_size, ZipEntry& entry, std::uint64_t& header) {
  const bool needs_size = entry.size == 0xffffffff, needs_stored = entry.stored_size == 0xffffffff, needs_header = header == 0xffffffff;
  if (!needs_size && !needs_stored && !needs_header) return;
  for (std::uint64_t end = at + extra_size; end - at >= 4;) {
    const std::uint64_t size = bytes.u16(at + 2);
    if (end - at - 4 < size) break;
    if (bytes.u16(at) == 1) {
      std::uint64_t field = at + 4;
      const std::uint64_t field_end = field + size;
      const auto take = [&](bool needed, std::uint64_t& value) {
        if (!needed) return;
        if (field_end - field < 8) bytes.fail("has a zip64 field that is too short");
        value = bytes.u64(field);
        field += 8;
      };
      take(needs_size, entry.size);
      take(needs_stored, entry.stored_size);
      take(needs_header, header);
      return;
    }
    at += 4 + size;
  }
}

void check_name(const Bytes& bytes, const std::string& name) {
  const bool escapes = name.empty() || name.front() == '/' || name.find('\\') != std::string::npos || name.find('\0') != std::string::npos ||
                       ("/" + name + "/").find("/../") != std::string::npos;
  if (escapes) bytes.fail(fmt::format("has an entry with the name {:?}", name));
}

/// Where the bytes of an entry begin: behind its local header, whose name and extra field have lengths of their own.
std::uint64_t data_offset(const Bytes& bytes, std::uint64_t header, const ZipEntry& entry, std::uint64_t limit) {
  if (header > limit || limit - header < kLocalHeaderSize || bytes.u32(header) != kLocalHeader) {
    bytes.fail(fmt::format("has no local header for {}", entry.name));
  }
  const std::uint64_t name_size = bytes.u16(header + 26);
  if (bytes.text(header + kLocalHeaderSize, name_size) != entry.name) bytes.fail(fmt::format("names {} differently in its local header", entry.name));
  const std::uint64_t offset = header + kLocalHeaderSize + name_size + bytes.u16(header + 28);
  if (offset > limit || limit - offset < entry.stored_size) bytes.fail(fmt::format("has {} reaching out of the file", entry.name));
  return offset;
}

ZipEntry read_central_header(const Bytes& bytes, std::uint64_t& at, const Directory& directory) {
  if (bytes.u32(at) != kCentralHeader) bytes.fail("has a damaged directory");
  ZipEntry entry;
  const std::uint16_t flags = bytes.u16(at + 8), method = bytes.u16(at + 10);
  entry.crc = bytes.u32(at + 16);
  entry.stored_size = bytes.u32(at + 20);
  entry.size = bytes.u32(at + 24);
  const std::uint64_t name_size = bytes.u16(at + 28), extra_size = bytes.u16(at + 30), comment_size = bytes.u16(at + 32);
  std::uint64_t header = bytes.u32(at + 42);
  entry.name = std::string(bytes.text(at + kCentralHeaderSize, name_size));
  check_name(bytes, entry.name);
  (void)bytes.text(at + kCentralHeaderSize + name_size, extra_size + comment_size);
  read_zip64_extra(bytes, at + kCentralHeaderSize + name_size, extra_size, entry, header);
  if ((flags & 0x41U) != 0) bytes.fail(fmt::format("has {} encrypted", entry.name));
  if (method != 0 && method != 8) bytes.fail(fmt::format("has {} compressed by method {}, which is not supported", entry.name, method));
  entry.deflated = method == 8;
  if (!entry.deflated && entry.size != entry.stored_size) bytes.fail(fmt::format("gives two sizes for {}", entry.name));
  entry.offset = data_offset(bytes, header, entry, directory.offset);
  at += kCentralHeaderSize + name_size + extra_size + comment_size;
  return entry;
}

std::uint32_t crc_of(std::string_view bytes) {
  uLong crc = crc32(0, nullptr, 0);
  while (!bytes.empty()) {
    const std::size_t part = std::min<std::size_t>(bytes.size(), 1U << 30);
    crc = crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(part));
    bytes.remove_prefix(part);
  }
  return static_cast<std::uint32_t>(crc);
}

/// Nothing if the bytes do not unpack to exactly the recorded size.
std::shared_ptr<std::string> inflate_entry(std::string_view packed, std::uint64_t size) {
  // Deflate never shrinks by more than 1032; a file that claims so would only make us reserve memory.
  if (size > kLargestUnpacked || packed.size() > kLargestUnpacked || size / 1032 > packed.size() + 1) return nullptr;
  auto result = std::make_shared<std::string>(size, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return nullptr;
  char nothing = 0;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(size > 0 ? result->data() : &nothing);
  stream.avail_out = static_cast<uInt>(size);
  const int status = inflate(&stream, Z_FINISH);
  const bool complete = status == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return complete ? result : nullptr;
}

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
  const Bytes bytes(file_->bytes(), file_->name());
  const Directory directory = find_directory(bytes);
  std::uint64_t at = directory.offset;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    entries_.push_back(read_central_header(bytes, at, directory));
    if (!names.insert(entries_.back().name).second) bytes.fail(fmt::format("has {} twice", entries_.back().name));
  }
  if (at != directory.offset + directory.size) bytes.fail("has a directory of another size than it says");
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const ZipEntry& entry) { return entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

ZipData ZipArchive::read(const ZipEntry& entry) const {
  const Bytes bytes(file_->bytes(), file_->name());
  ZipData data{bytes.text(entry.offset, entry.stored_size), file_};
  if (entry.deflated) {
    const auto unpacked = inflate_entry(data.bytes, entry.size);
    if (unpacked == nullptr) bytes.fail(fmt::format("has {} damaged: it cannot be unpacked", entry.name));
    data = {*unpacked, unpacked};
  }
  if (crc_of(data.bytes) != entry.crc)
    bytes.fail(fmt::format("has {} damaged: its CRC is {:08x}, not {:08x}", entry.name, crc_of(data.bytes), entry.crc));
  return data;
}

bool looks_like_zip(std::string_view bytes) { return bytes.substr(0, 4) == "PK\3\4" || bytes.substr(0, 4) == "PK\5\6"; }

}  // namespace pipedream
