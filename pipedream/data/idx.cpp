#include "pipedream/data/idx.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kLargestArray = std::int64_t{1} << 36;  // 64 GiB: beyond it a header is surely wrong
constexpr const char* kIdxHint = "an IDX file of unsigned bytes is expected, as MNIST and Fashion-MNIST come; fetch it again";

// A file read through zlib, which passes uncompressed files on as they are.
class CompressedFile {
 public:
  explicit CompressedFile(const std::filesystem::path& path) : path_(path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) throw InputError(path.string(), "is a folder, not a file");
    errno = 0;
    file_ = gzopen(path.c_str(), "rb");
    if (!file_) throw InputError(path.string(), fmt::format("cannot be opened: {}", std::strerror(errno)));
    gzbuffer(file_, 1 << 18);
  }
  CompressedFile(const CompressedFile&) = delete;
  CompressedFile& operator=(const CompressedFile&) = delete;
  ~CompressedFile() { gzclose(file_); }

  // Fewer bytes than asked for only at the end of the file.
  std::size_t read(std::uint8_t* to, std::size_t count) {
    std::size_t done = 0;
    while (done < count) {
      const int got = gzread(file_, to + done, static_cast<unsigned>(std::min<std::size_t>(count - done, 1U << 20)));
      int code = Z_OK;
      const char* text = gzerror(file_, &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) fail(fmt::format("cannot be read: {}", code == Z_ERRNO ? std::strerror(errno) : text));
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  [[noreturn]] void fail(const std::string& what) const { throw InputError(path_.string(), what, kIdxHint); }

 private:
  std::filesystem::path path_;
  gzFile file_ = nullptr;
};

std::vector<std::int64_t> read_idx_header(CompressedFile& file, int rank) {
  std::uint8_t header[4];
  if (file.read(header, 4) != 4) file.fail("is too short for an IDX header");
  if (header[0] != 0 || header[1] != 0) file.fail(fmt::format("is no IDX file: it begins with bytes {:02x} {:02x}, not 00 00", header[0], header[1]));
  if (header[2] != 0x08) file.fail(fmt::format("holds values of type {:#04x}, only unsigned bytes (0x08) are read", header[2]));
  if (header[3] != rank) file.fail(fmt::format("has {} dimensions where {} are expected ({})", header[3], rank, rank == 1 ? "labels" : "images"));
  std::vector<std::int64_t> shape;
  for (int i = 0; i < rank; ++i) {
    std::uint8_t bytes[4];
    if (file.read(bytes, 4) != 4) file.fail("ends within its header");
    const std::int64_t size = (std::int64_t{bytes[0]} << 24) | (bytes[1] << 16) | (bytes[2] << 8) | bytes[3];
    if (size == 0) file.fail(fmt::format("is empty: dimension {} is 0", i));
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

IdxArray load_idx(const std::filesystem::path& path, int rank) {
  CompressedFile file(path);
  IdxArray array{read_idx_header(file, rank), {}};
  std::int64_t total = 1;
  for (const std::int64_t size : array.shape) {
    if (size > kLargestArray / total) file.fail(fmt::format("claims {} values, more than can be", fmt::join(array.shape, " x ")));
    total *= size;
  }
  // Grows with what is really there: a header that lies cannot make us take memory.
  constexpr std::int64_t kStep = 1 << 24;
  while (static_cast<std::int64_t>(array.values.size()) < total) {
    const std::size_t begin = array.values.size();
    const auto count = static_cast<std::size_t>(std::min(kStep, total - static_cast<std::int64_t>(begin)));
    array.values.resize(begin + count);
    const std::size_t got = file.read(array.values.data() + begin, count);
    if (got < count) file.fail(fmt::format("is cut off: {} values of {}", begin + got, total));
  }
  std::uint8_t extra = 0;
  if (file.read(&extra, 1) != 0) file.fail(fmt::format("goes on after its {} values", total));
  return array;
}

}  // namespace pipedream
