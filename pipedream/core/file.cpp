#include "pipedream/core/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view doing, int error) {
  std::string hint;
  if (error == ENOENT) hint = "check the path";
  if (error == ENOSPC || error == EDQUOT) hint = "free some space or choose another place";
  if (error == EACCES || error == EPERM || error == EROFS) hint = "check the permissions";
  throw InputError(path.string(), fmt::format("cannot {}: {}", doing, std::strerror(error)), hint);
}

void write_all(int fd, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path, "write", errno);
    content.remove_prefix(static_cast<std::size_t>(n));
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  const bool is_stdin = path == "-";
  if (!is_stdin && std::filesystem::is_directory(path)) fail(path, "read", EISDIR);
  std::FILE* raw = is_stdin ? stdin : std::fopen(path.c_str(), "rb");
  if (raw == nullptr) fail(path, "read", errno);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(raw, is_stdin ? [](std::FILE*) { return 0; } : std::fclose);
  std::string content;
  char buffer[65536];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, file.get())) > 0;) content.append(buffer, n);
  if (std::ferror(file.get()) != 0) fail(path, "read", errno);
  return content;
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  if (path == "-") {
    write_all(STDOUT_FILENO, content, "standard output");
    return;
  }
  // A device or a pipe (/dev/full, /dev/stdout) cannot be replaced by renaming: it is written in place.
  std::error_code ignored;
  const bool in_place = std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  const std::string temporary = in_place ? path.string() : fmt::format("{}.{}.part", path.string(), ::getpid());
  const int fd = ::open(temporary.c_str(), in_place ? O_WRONLY : O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (fd < 0) fail(path, "write", errno);
  try {
    write_all(fd, content, path);
    if (!in_place && ::fsync(fd) != 0) fail(path, "write", errno);
  } catch (...) {
    ::close(fd);
    if (!in_place) ::unlink(temporary.c_str());
    throw;
  }
  if (::close(fd) != 0) fail(path, "write", errno);
  if (!in_place && ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail(path, "write", error);
  }
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail(path, "make the folder", error.value());
}

}  // namespace pipedream
