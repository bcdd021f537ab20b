#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace pipedream {

/// How models and data sets are named on the command line: "name" or "name:key=value,key=value". One first item without "=" is allowed
/// and read with the key "" ("text:book.txt"). Every key asked for counts as known; finish() complains about the others.
class NamedSpec {
 public:
  /// @param kind what errors call it: "model", "data set" @throws UsageError for a malformed text or a key given twice
  NamedSpec(const std::string& text, std::string kind);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise);
  /// @throws UsageError for what is no integer or lies outside [minimum, maximum]
  [[nodiscard]] std::int64_t integer(const std::string& key, std::int64_t otherwise, std::int64_t minimum, std::int64_t maximum);
  [[nodiscard]] double number(const std::string& key, double otherwise, double minimum, double maximum);
  /// 0, 1, true, false, yes, no.
  [[nodiscard]] bool flag(const std::string& key, bool otherwise);
  [[nodiscard]] bool has(const std::string& key) const;

  /// Call after the last key was read. @throws UsageError naming the first key nobody asked for and the known ones
  void finish() const;

 private:
  const std::string* find(const std::string& key);
  [[noreturn]] void fail(const std::string& key, const std::string& value, const std::string& wanted) const;

  std::string kind_, name_;
  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::string> known_;
};

}  // namespace pipedream
