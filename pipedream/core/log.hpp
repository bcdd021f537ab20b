#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

/// Messages to the person at the terminal. They go to standard error, so results on standard output stay clean.
namespace pipedream {

enum class Verbosity { Quiet, Normal, Verbose };

/// Sets what is shown: Quiet shows warnings only, Verbose shows details too. Call once at program start.
void set_verbosity(Verbosity verbosity);
[[nodiscard]] Verbosity verbosity();

void write_log_detail(const std::string& text);
void write_log_info(const std::string& text);
void write_log_warning(const std::string& text);

template <typename... Args>
void log_detail(fmt::format_string<Args...> format, Args&&... args) {
  if (verbosity() == Verbosity::Verbose) write_log_detail(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  if (verbosity() != Verbosity::Quiet) write_log_info(fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  write_log_warning(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace pipedream
