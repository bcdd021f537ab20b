#include "pipedream/core/error.hpp"

namespace pipedream {

void fail_check(std::string_view condition, const char* file, int line, const std::string& detail) {
  std::string_view name = file;
  if (const auto at = name.rfind("pipedream/"); at != std::string_view::npos) name.remove_prefix(at);
  throw InternalError(fmt::format("{}:{}: `{}` does not hold{}{}", name, line, condition, detail.empty() ? "" : ": ", detail));
}

}  // namespace pipedream
