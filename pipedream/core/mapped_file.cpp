#include "pipedream/core/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

[[noreturn]] void fail_to_map(const std::filesystem::path& path, int error) {
  throw InputError(path.string(), fmt::format("cannot read: {}", std::strerror(error)), error == ENOENT ? "check the path" : "");
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = path.string();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail_to_map(path, errno);
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    const int error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    ::close(fd);
    fail_to_map(path, error);
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* mapping = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    ::close(fd);
    if (mapping == MAP_FAILED) fail_to_map(path, error);
    file->mapping_ = mapping;
    file->bytes_ = {static_cast<const char*>(mapping), size};
  } else {
    ::close(fd);
  }
  return file;
}

std::shared_ptr<const MappedFile> MappedFile::from_bytes(std::string bytes, std::string name) {
  std::shared_ptr<MappedFile> file(new MappedFile);
  file->name_ = std::move(name);
  file->owned_ = std::move(bytes);
  file->bytes_ = file->owned_;
  return file;
}

MappedFile::~MappedFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, bytes_.size());
}

}  // namespace pipedream
