#pragma once

#include <string>

namespace pipedream::cli {

/// A text between quotation marks, with marks and backslashes in it escaped, as TOML and graphviz read it.
[[nodiscard]] std::string quoted(const std::string& text);

}  // namespace pipedream::cli
