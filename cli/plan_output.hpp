#pragma once

#include <string>
#include <vector>

#include "pipedream/plan/plan.hpp"

namespace pipedream::cli {

/// "4,4" and "4" "4" alike: all parts.
[[nodiscard]] std::vector<std::string> split_commas(const std::vector<std::string>& values);

/// @throws UsageError naming the option
[[nodiscard]] int parse_count(const std::string& text, const char* option);

/// "first .. last (number)", shortened.
[[nodiscard]] std::string layers_text(const std::vector<std::string>& layers);

/// The stages of a plan as a table on standard output.
void print_stages(const Plan& plan);

}  // namespace pipedream::cli
