#include "pipedream/checkpoint/safetensors.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"

namespace pipedream {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;  // the limit of the reference implementation
constexpr const char* kDamaged = "the file is damaged or was not copied completely";

std::uint64_t header_size(std::string_view bytes) {
  std::uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return size;
}

std::string_view header_of(const MappedFile& file) {
  const std::string_view bytes = file.bytes();
  if (bytes.size() < 8) throw InputError(file.name(), "this is no safetensors file: it is too short", kDamaged);
  const std::uint64_t size = header_size(bytes);
  if (size > kLargestHeader || size > bytes.size() - 8)
    throw InputError(file.name(), "this is no safetensors file: its header is larger than the file", kDamaged);
  return bytes.substr(8, size);
}

/// The bytes a tensor of this shape has; fails on overflow and unknown types.
std::uint64_t bytes_of(const JsonView& view, const SafetensorsEntry& entry) {
  const int element = safetensors_element_bytes(entry.type);
  if (element == 0) view.fail(fmt::format("the element type {:?} is not known", entry.type));
  std::uint64_t result = static_cast<std::uint64_t>(element);
  for (const std::int64_t size : entry.shape) {
    if (__builtin_mul_overflow(result, static_cast<std::uint64_t>(size), &result)) view.fail("the tensor is too large");
  }
  return result;
}

struct Placed {
  std::uint64_t begin = 0, end = 0;
  SafetensorsEntry entry;
};

Placed read_entry(const JsonView& view, const std::string& name, std::string_view data) {
  Placed result;
  result.entry.name = name;
  result.entry.type = view.at("dtype").string();
  for (const JsonView& size : view.at("shape").elements()) result.entry.shape.push_back(size.integer(0));
  const std::vector<JsonView> offsets = view.at("data_offsets").elements();
  if (offsets.size() != 2) view.fail("data_offsets must be two numbers");
  result.begin = static_cast<std::uint64_t>(offsets[0].integer(0));
  result.end = static_cast<std::uint64_t>(offsets[1].integer(0));
  if (result.begin > result.end || result.end > data.size()) view.fail("the data lies outside the file", kDamaged);
  const std::uint64_t needed = bytes_of(view, result.entry);
  if (result.end - result.begin != needed)
    view.fail(fmt::format("the tensor has {} bytes, its shape needs {}", result.end - result.begin, needed), kDamaged);
  result.entry.bytes = data.substr(result.begin, result.end - result.begin);
  return result;
}

std::string make_header(const std::vector<SafetensorsEntry>& entries, const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const SafetensorsEntry& entry : entries) {
    PD_CHECK(!header.contains(entry.name), "{} is written twice", entry.name);
    header[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes.size()}}};
    at += entry.bytes.size();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
  std::string result;
  for (int i = 0; i < 8; ++i) result += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return result + text;
}

}  // namespace

int safetensors_element_bytes(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, int>, 15> kTypes{{{"F64", 8},
                                                                     {"F32", 4},
                                                                     {"F16", 2},
                                                                     {"BF16", 2},
                                                                     {"I64", 8},
                                                                     {"I32", 4},
                                                                     {"I16", 2},
                                                                     {"I8", 1},
                                                                     {"U64", 8},
                                                                     {"U32", 4},
                                                                     {"U16", 2},
                                                                     {"U8", 1},
                                                                     {"BOOL", 1},
                                                                     {"F8_E4M3", 1},
                                                                     {"F8_E5M2", 1}}};
  const auto at = std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& item) { return item.first == type; });
  return at == kTypes.end() ? 0 : at->second;
}

SafetensorsFile::SafetensorsFile(std::shared_ptr<const MappedFile> file) : file_(std::move(file)) {
  const std::string_view header = header_of(*file_), data = file_->bytes().substr(8 + header.size());
  const Json json = parse_json(header, file_->name());
  const JsonView root(json, file_->name());
  if (!json.is_object()) root.fail("an object is expected");
  std::vector<Placed> placed;
  std::set<std::string> names;
  for (const auto& item : json.items()) {
    const JsonView view = root.at(item.key());
    if (item.key() == "__metadata__") {
      if (!view.json().is_object()) view.fail("an object is expected");
      for (const auto& pair : view.json().items()) metadata_[pair.key()] = view.at(pair.key()).string();
      continue;
    }
    if (!names.insert(item.key()).second) view.fail("the name is there twice");
    placed.push_back(read_entry(view, item.key(), data));
  }
  std::stable_sort(placed.begin(), placed.end(),
                   [](const Placed& a, const Placed& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (Placed& tensor : placed) {
    if (tensor.begin != at)
      throw InputError(file_->name(), fmt::format("the data of {} does not follow what is before it", tensor.entry.name), kDamaged);
    at = tensor.end;
    entries_.push_back(std::move(tensor.entry));
  }
  if (at != data.size()) throw InputError(file_->name(), fmt::format("there are {} bytes of data, the tensors have {}", data.size(), at), kDamaged);
}

const SafetensorsEntry* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const SafetensorsEntry& entry) { return entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const std::map<std::string, std::string>& metadata) {
  const std::string temporary = fmt::format("{}.{}.part", path.string(), ::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  const auto fail = [&]() {
    const int error = errno;
    if (file != nullptr) std::fclose(file);
    std::remove(temporary.c_str());
    throw InputError(path.string(), fmt::format("cannot write: {}", std::strerror(error)),
                     error == ENOENT   ? "check the path"
                     : error == ENOSPC ? "free some space"
                                       : "");
  };
  if (file == nullptr) fail();
  const auto put = [&](std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size()) fail();
  };
  put(make_header(entries, metadata));
  for (const SafetensorsEntry& entry : entries) put(entry.bytes);
  if (std::fflush(file) != 0 || ::fsync(::fileno(file)) != 0) fail();
  if (std::fclose(std::exchange(file, nullptr)) != 0 || std::rename(temporary.c_str(), path.c_str()) != 0) fail();
}

bool looks_like_safetensors(std::string_view bytes) {
  return bytes.size() >= 9 && bytes[8] == '{' && header_size(bytes) <= kLargestHeader && header_size(bytes) <= bytes.size() - 8;
}

}  // namespace pipedream
