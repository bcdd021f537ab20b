#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// JSON as our files use it. Include it in .cpp files only: it is a large header.
namespace pipedream {

/// Keys keep the order they were written in, so printed files read like the documentation.
using Json = nlohmann::ordered_json;

/// A value inside a JSON file that knows its place, so that every error names file and JSON pointer.
class JsonView {
 public:
  JsonView(const Json& value, std::string file, std::string pointer = {});

  /// The member `key`. @throws InputError if this is no object or the key is missing.
  [[nodiscard]] JsonView at(const std::string& key) const;
  /// The member `key`, nothing where it is absent or null.
  [[nodiscard]] std::optional<JsonView> find(const std::string& key) const;
  /// The elements of an array. @throws InputError if this is no array.
  [[nodiscard]] std::vector<JsonView> elements() const;

  [[nodiscard]] std::string string() const;
  [[nodiscard]] bool boolean() const;
  /// A finite number, at least `minimum`.
  [[nodiscard]] double number(double minimum = -1e308) const;
  /// An integer (2 and 2.0 are integers, 2.5 is not), at least `minimum`.
  [[nodiscard]] std::int64_t integer(std::int64_t minimum = INT64_MIN) const;
  /// An integer from 0 to 2^31 - 1.
  [[nodiscard]] int index() const;

  [[nodiscard]] const Json& json() const { return *value_; }
  /// "file#/pointer".
  [[nodiscard]] std::string place() const;
  /// @throws InputError for this place; always.
  [[noreturn]] void fail(const std::string& what, const std::string& hint = {}) const;

 private:
  const Json* value_;
  std::string file_, pointer_;
};

/// Parses a JSON text. @throws InputError with file and line where it is malformed.
[[nodiscard]] Json parse_json(std::string_view text, const std::string& file);

/// Checks that the member "schema" is `schema` ("pipedream.plan/1"). @throws InputError that says what the file is instead.
void require_schema(const JsonView& view, std::string_view schema);

}  // namespace pipedream
