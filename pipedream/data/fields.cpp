#include "pipedream/data/fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {

void require_fields(const std::vector<FieldSpec>& wanted, std::initializer_list<const char*> names, const std::string& data_set) {
  for (const FieldSpec& field : wanted) {
    const bool known = std::any_of(names.begin(), names.end(), [&](const char* name) { return field.name == name; });
    if (!known)
      throw UsageError(fmt::format("the model reads an input '{}', which data set '{}' does not have", field.name, data_set),
                       fmt::format("it has: {}", fmt::join(std::vector<std::string>(names.begin(), names.end()), ", ")));
  }
}

void require_field_form(const FieldSpec& field, at::ScalarType dtype, std::size_t dimensions, const std::string& data_set) {
  if (field.dtype == dtype && field.shape.size() == dimensions) return;
  throw UsageError(fmt::format("the model wants '{}' as {} of {} dimension(s) per sample, data set '{}' gives {} of {}", field.name,
                               c10::toString(field.dtype), field.shape.size(), data_set, c10::toString(dtype), dimensions));
}

}  // namespace pipedream
