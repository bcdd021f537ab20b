#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "pipedream/core/error.hpp"

/// Values as bytes, for messages between processes of one program version on machines of one byte order; not for files.
namespace pipedream {

class ByteWriter {
 public:
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const T& value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void put(std::string_view text) {
    put(text.size());
    bytes_.append(text);
  }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  void put(const std::vector<T>& values) {
    put(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a ByteWriter wrote, in the same order. @throws RankError if the bytes end early: the other side runs another program
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] T get() {
    T value;
    std::memcpy(&value, next(sizeof value).data(), sizeof value);
    return value;
  }
  [[nodiscard]] std::string get_text() { return std::string(next(get<std::size_t>())); }
  template <typename T>
  requires std::is_trivially_copyable_v<T>
  [[nodiscard]] std::vector<T> get_vector() {
    const auto n = get<std::size_t>();
    if (n > bytes_.size() / sizeof(T)) throw RankError("a message between ranks is cut short");
    std::vector<T> values(n);
    if (n > 0) std::memcpy(values.data(), next(n * sizeof(T)).data(), n * sizeof(T));
    return values;
  }

 private:
  std::string_view next(std::size_t n) {
    if (n > bytes_.size()) throw RankError("a message between ranks is cut short");
    const auto found = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return found;
  }
  std::string_view bytes_;
};

}  // namespace pipedream
