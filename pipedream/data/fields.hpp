#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "pipedream/data/data_set.hpp"

namespace pipedream {

/// Checks that a data set that has fields of these names can give the wanted ones. @throws UsageError naming both
void require_fields(const std::vector<FieldSpec>& wanted, std::initializer_list<const char*> names, const std::string& data_set);

/// @throws UsageError unless the field has this type and number of dimensions
void require_field_form(const FieldSpec& field, at::ScalarType dtype, std::size_t dimensions, const std::string& data_set);

}  // namespace pipedream
