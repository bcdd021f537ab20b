#include "pipedream/core/named_spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "pipedream/core/error.hpp"

namespace pipedream {

NamedSpec::NamedSpec(const std::string& text, std::string kind) : kind_(std::move(kind)) {
  const auto colon = text.find(':');
  name_ = text.substr(0, colon);
  if (name_.empty()) throw UsageError(fmt::format("a {} needs a name: '{}'", kind_, text), "write NAME or NAME:key=value,key=value");
  if (colon == std::string::npos) return;
  std::size_t begin = colon + 1;
  for (bool first = true; begin <= text.size(); first = false) {
    const auto end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const auto equals = item.find('=');
    const bool positional = equals == std::string::npos;
    if (item.empty() || equals == 0 || (positional && !first))
      throw UsageError(fmt::format("malformed option '{}' of {} '{}'", item, kind_, name_), "write NAME:key=value,key=value");
    const std::string key = positional ? "" : item.substr(0, equals);
    if (has(key)) throw UsageError(fmt::format("option '{}' of {} '{}' is given twice", key, kind_, name_));
    values_.emplace_back(key, positional ? item : item.substr(equals + 1));
    begin = end + 1;
  }
}

bool NamedSpec::has(const std::string& key) const {
  return std::any_of(values_.begin(), values_.end(), [&](const auto& value) { return value.first == key; });
}

const std::string* NamedSpec::find(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  const auto it = std::find_if(values_.begin(), values_.end(), [&](const auto& value) { return value.first == key; });
  return it == values_.end() ? nullptr : &it->second;
}

void NamedSpec::fail(const std::string& key, const std::string& value, const std::string& wanted) const {
  throw UsageError(fmt::format("{} '{}': {}={} is not {}", kind_, name_, key, value, wanted));
}

std::string NamedSpec::text(const std::string& key, const std::string& otherwise) {
  const std::string* value = find(key);
  return value ? *value : otherwise;
}

std::int64_t NamedSpec::integer(const std::string& key, std::int64_t otherwise, std::int64_t minimum, std::int64_t maximum) {
  const std::string* value = find(key);
  if (!value) return otherwise;
  std::int64_t result = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
  if (error != std::errc{} || end != value->data() + value->size() || result < minimum || result > maximum)
    fail(key, *value, fmt::format("an integer from {} to {}", minimum, maximum));
  return result;
}

double NamedSpec::number(const std::string& key, double otherwise, double minimum, double maximum) {
  const std::string* value = find(key);
  if (!value) return otherwise;
  double result = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), result);
  if (error != std::errc{} || end != value->data() + value->size() || !std::isfinite(result) || result < minimum || result > maximum)
    fail(key, *value, fmt::format("a number from {} to {}", minimum, maximum));
  return result;
}

bool NamedSpec::flag(const std::string& key, bool otherwise) {
  const std::string* value = find(key);
  if (!value) return otherwise;
  if (*value == "1" || *value == "true" || *value == "yes") return true;
  if (*value == "0" || *value == "false" || *value == "no") return false;
  fail(key, *value, "0 or 1");
}

void NamedSpec::finish() const {
  for (const auto& [key, value] : values_) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::vector<std::string> names;
    std::copy_if(known_.begin(), known_.end(), std::back_inserter(names), [](const std::string& name) { return !name.empty(); });
    const std::string shown = key.empty() ? value : key;
    throw UsageError(fmt::format("{} '{}' has no option '{}'", kind_, name_, shown),
                     names.empty() ? "it has no options" : fmt::format("its options: {}", fmt::join(names, ", ")));
  }
}

}  // namespace pipedream
