#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"

namespace pipedream {

/// A file of broken inputs: blocks of "=== title", the input, then "> message" and "> hint: ...".
struct BrokenInput {
  std::string title, input, answer;
};

inline std::vector<BrokenInput> read_broken_inputs(const std::string& file) {
  std::vector<BrokenInput> cases;
  std::istringstream lines(read_file(file));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("=== ", 0) == 0) cases.push_back({line.substr(4), "", ""});
    else if (line.rfind("> ", 0) == 0) cases.back().answer += line + "\n";
    else cases.back().input += line + "\n";
  }
  return cases;
}

/// Reads every input with `read` and compares the error with the file. PIPEDREAM_UPDATE_GOLDEN=1 rewrites the file instead.
inline void expect_golden_errors(const std::string& file, std::size_t at_least, const std::function<void(const std::string&)>& read) {
  std::vector<BrokenInput> cases = read_broken_inputs(file);
  EXPECT_GE(cases.size(), at_least);
  const bool update = std::getenv("PIPEDREAM_UPDATE_GOLDEN") != nullptr;
  std::string rewritten;
  for (const BrokenInput& broken : cases) {
    std::string answer = "> accepted\n";
    try {
      std::string input = broken.input;
      if (!input.empty()) input.pop_back();
      read(input);
    } catch (const InputError& error) {
      answer = fmt::format("> {}\n", error.what());
      if (!error.hint().empty()) answer += fmt::format("> hint: {}\n", error.hint());
    }
    if (update) rewritten += fmt::format("=== {}\n{}{}", broken.title, broken.input, answer);
    else EXPECT_EQ(answer, broken.answer) << broken.title;
  }
  if (update) write_file(file, rewritten);
}

}  // namespace pipedream
