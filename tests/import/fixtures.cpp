#include "fixtures.hpp"

#include <zlib.h>

#include <random>

#include "pipedream/core/file.hpp"

namespace pipedream::testing {
namespace {

void put(std::string& out, std::uint64_t value, int width) {
  for (int i = 0; i < width; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::string deflated(const std::string& data) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, data.size()) + 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

std::string fixture(const std::string& name) { return std::string(PIPEDREAM_SOURCE_DIR) + "/tests/import/fixtures/" + name; }
std::string read_fixture(const std::string& name) { return read_file(fixture(name)); }

std::string make_zip(const std::vector<std::pair<std::string, std::string>>& entries, const ZipOptions& options) {
  std::string out, directory;
  for (const auto& [name, content] : entries) {
    const std::string data = options.deflate ? deflated(content) : content;
    const std::uint64_t crc = crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::uint64_t offset = out.size(), flags = options.data_descriptor ? 8 : 0, method = options.deflate ? 8 : 0;
    // Local header: signature, version, flags, method, time, date, crc, stored size, size, lengths of name and extra field.
    put(out, 0x04034b50, 4), put(out, 45, 2), put(out, flags, 2), put(out, method, 2), put(out, 0, 4);
    put(out, options.data_descriptor ? 0 : crc, 4), put(out, options.data_descriptor ? 0 : data.size(), 4),
        put(out, options.data_descriptor ? 0 : content.size(), 4);
    put(out, name.size(), 2), put(out, 3, 2);
    out += name + "pad" + data;
    if (options.data_descriptor) put(out, 0x08074b50, 4), put(out, crc, 4), put(out, data.size(), 4), put(out, content.size(), 4);
    put(directory, 0x02014b50, 4), put(directory, 45, 2), put(directory, 45, 2), put(directory, flags, 2), put(directory, method, 2),
        put(directory, 0, 4);
    put(directory, crc, 4), put(directory, options.zip64 ? 0xffffffff : data.size(), 4),
        put(directory, options.zip64 ? 0xffffffff : content.size(), 4);
    put(directory, name.size(), 2), put(directory, options.zip64 ? 28 : 0, 2), put(directory, 0, 2), put(directory, 0, 2), put(directory, 0, 2),
        put(directory, 0, 4);
    put(directory, options.zip64 ? 0xffffffff : offset, 4);
    directory += name;
    if (options.zip64)
      put(directory, 1, 2), put(directory, 24, 2), put(directory, content.size(), 8), put(directory, data.size(), 8), put(directory, offset, 8);
  }
  const std::uint64_t start = out.size();
  out += directory;
  if (options.zip64) {
    const std::uint64_t end64 = out.size();
    put(out, 0x06064b50, 4), put(out, 44, 8), put(out, 45, 2), put(out, 45, 2), put(out, 0, 4), put(out, 0, 4);
    put(out, entries.size(), 8), put(out, entries.size(), 8), put(out, directory.size(), 8), put(out, start, 8);
    put(out, 0x07064b50, 4), put(out, 0, 4), put(out, end64, 8), put(out, 1, 4);
  }
  put(out, 0x06054b50, 4), put(out, 0, 4), put(out, options.zip64 ? 0xffff : entries.size(), 2), put(out, options.zip64 ? 0xffff : entries.size(), 2);
  put(out, options.zip64 ? 0xffffffff : directory.size(), 4), put(out, options.zip64 ? 0xffffffff : start, 4);
  put(out, options.comment.size(), 2);
  return out + options.comment;
}

std::string mutate(std::string bytes, std::uint64_t seed, int changes) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t at = random() % bytes.size();
    const std::size_t length = std::min<std::size_t>(1 + random() % 16, bytes.size() - at);
    switch (random() % 5) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        random() % 8 == 0 ? bytes.resize(at) : (bytes[at] = "0129-\"{}[],:enu"[random() % 15], void());
        break;
    }
  }
  return bytes;
}

}  // namespace pipedream::testing
