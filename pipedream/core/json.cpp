#include "pipedream/core/json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

}  // namespace

JsonView::JsonView(const Json& value, std::string file, std::string pointer) : value_(&value), file_(std::move(file)), pointer_(std::move(pointer)) {}

std::string JsonView::place() const { return pointer_.empty() ? file_ : file_ + "#" + pointer_; }

void JsonView::fail(const std::string& what, const std::string& hint) const { throw InputError(place(), what, hint); }

std::optional<JsonView> JsonView::find(const std::string& key) const {
  if (!value_->is_object()) fail(fmt::format("an object is expected, found {}", shown(*value_)));
  const auto at = value_->find(key);
  if (at == value_->end() || at->is_null()) return std::nullopt;
  return JsonView(*at, file_, pointer_ + "/" + key);
}

JsonView JsonView::at(const std::string& key) const {
  auto found = find(key);
  if (!found) fail(fmt::format("the key \"{}\" is missing", key), fmt::format("add \"{}\"", key));
  return *found;
}

std::vector<JsonView> JsonView::elements() const {
  if (!value_->is_array()) fail(fmt::format("an array is expected, found {}", shown(*value_)));
  std::vector<JsonView> result;
  result.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) result.emplace_back((*value_)[i], file_, fmt::format("{}/{}", pointer_, i));
  return result;
}

std::string JsonView::string() const {
  if (!value_->is_string()) fail(fmt::format("a text is expected, found {}", shown(*value_)));
  return value_->get<std::string>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) fail(fmt::format("true or false is expected, found {}", shown(*value_)));
  return value_->get<bool>();
}

double JsonView::number(double minimum) const {
  if (!value_->is_number()) fail(fmt::format("a number is expected, found {}", shown(*value_)));
  const double result = value_->get<double>();
  if (!std::isfinite(result)) fail("a finite number is expected");
  if (result < minimum) fail(fmt::format("a number of at least {} is expected, found {}", minimum, result));
  return result;
}

std::int64_t JsonView::integer(std::int64_t minimum) const {
  const double real = number();
  const bool is_integer = value_->is_number_integer() && !(value_->is_number_unsigned() && value_->get<std::uint64_t>() > INT64_MAX);
  if (!is_integer && (std::floor(real) != real || std::abs(real) > 9.2e18)) fail(fmt::format("an integer is expected, found {}", shown(*value_)));
  const std::int64_t result = is_integer ? value_->get<std::int64_t>() : static_cast<std::int64_t>(real);
  if (result < minimum) fail(fmt::format("an integer of at least {} is expected, found {}", minimum, result));
  return result;
}

int JsonView::index() const {
  const std::int64_t result = integer(0);
  if (result > 2147483647) fail(fmt::format("an integer below 2^31 is expected, found {}", result));
  return static_cast<int>(result);
}

Json parse_json(std::string_view text, const std::string& file) {
  // Deep nesting would overflow the stack of a recursive reader; none of our files is deep.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') in_string = true;
    else if (c == '[' || c == '{') {
      if (++depth > 200) throw InputError(file, "the JSON is nested more than 200 deep");
    } else if (c == ']' || c == '}') --depth;
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const auto end = std::min<std::size_t>(error.byte, text.size());
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    std::string what = error.what();
    if (const auto at = what.rfind("syntax error"); at != std::string::npos) what = what.substr(at);
    throw InputError(fmt::format("{}:{}", file, line), text.empty() ? "the file is empty, JSON is expected" : "malformed JSON: " + what);
  } catch (const Json::exception& error) {  // a number beyond what a double holds; the place is not known
    const std::string what = error.what();
    const auto at = what.find("] ");
    throw InputError(file, "malformed JSON: " + (at == std::string::npos ? what : what.substr(at + 2)));
  }
}

void require_schema(const JsonView& view, std::string_view schema) {
  const auto found = view.find("schema");
  if (!found)
    view.fail(fmt::format("this is no {} file: the key \"schema\" is missing", schema),
              fmt::format("a file of this kind starts with {{\"schema\":\"{}\"", schema));
  if (found->string() == schema) return;
  found->fail(fmt::format("\"{}\" is expected, found \"{}\"", schema, found->string()),
              "give the right kind of file, or write it again with this version of pipedream");
}

}  // namespace pipedream
