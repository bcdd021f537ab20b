#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace pipedream {

/// Exit codes of the program (docs/cli.md). The kind of an error says who is to blame, and with it which code the program ends with.
enum class ExitCode : int {
  Done = 0,
  InternalError = 1,  ///< a bug in this program
  UsageError = 2,     ///< a wrong option or combination of options
  InputError = 3,     ///< a bad input file
  Infeasible = 4,     ///< no answer exists; the tightest limit is named
  RankFailed = 5,     ///< a rank, a link or a deadline failed
};

/// Base of all errors that are reported to the user. `hint` says what to do about it; it may be empty.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string hint = {}) : std::runtime_error(what), code_(code), hint_(std::move(hint)) {}
  [[nodiscard]] ExitCode exit_code() const noexcept { return code_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  ExitCode code_;
  std::string hint_;
};

/// A broken invariant of our own code.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& what) : Error(ExitCode::InternalError, what) {}
};

/// A wrong option, a wrong name or options that contradict each other.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& what, std::string hint = {}) : Error(ExitCode::UsageError, what, std::move(hint)) {}
};

/// Bad input. `place` is "file", "file:line" or "file#/json/pointer"; it leads the message.
class InputError : public Error {
 public:
  InputError(std::string place, const std::string& what, std::string hint = {})
      : Error(ExitCode::InputError, place.empty() ? what : place + ": " + what, std::move(hint)), place_(std::move(place)) {}
  [[nodiscard]] const std::string& place() const noexcept { return place_; }

 private:
  std::string place_;
};

/// No plan or schedule satisfies the limits; the message names the tightest one.
class InfeasibleError : public Error {
 public:
  explicit InfeasibleError(const std::string& what, std::string hint = {}) : Error(ExitCode::Infeasible, what, std::move(hint)) {}
};

/// A rank failed, a link failed or a deadline passed while a schedule ran.
class RankError : public Error {
 public:
  explicit RankError(const std::string& what, std::string hint = {}) : Error(ExitCode::RankFailed, what, std::move(hint)) {}
};

[[noreturn]] void fail_check(std::string_view condition, const char* file, int line, const std::string& detail);

/// Throws InternalError unless the condition holds; on in every build type. Further arguments are a fmt format and its values.
#define PD_CHECK(condition, ...)                                                                              \
  do {                                                                                                        \
    if (!(condition)) ::pipedream::fail_check(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__)); \
  } while (false)

}  // namespace pipedream
