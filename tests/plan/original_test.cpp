#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "pipedream/core/file.hpp"
#include "pipedream/plan/original_search.hpp"

namespace pipedream {
namespace {

const std::filesystem::path kData = "../shared/data";

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

OriginalOptions options_of(const std::vector<std::string>& row) {
  OriginalOptions options;
  const auto machines = split(row[1], ' '), bandwidths = split(row[2], ' ');
  for (std::size_t i = 0; i < machines.size(); ++i) options.levels.push_back({std::stoi(machines[i]), std::stod(bandwidths[i])});
  if (row[3] != "none") options.compression = std::stod(row[3]);
  options.straight = row[4].find("straight") != std::string::npos;
  options.fewer_machines = row[4].find("fewer") != std::string::npos;
  if (const auto at = row[4].find("s="); at != std::string::npos) options.memory_bytes = std::stod(row[4].substr(at + 2));
  return options;
}

OriginalStates states_of(const std::string& name) {
  const auto at = name.find("_compressed");
  const Profile profile = load_profile((kData / "profiles" / (name.substr(0, at) + ".graph.txt")).string());
  return *original_states(at == std::string::npos ? profile : compress_branches(profile), 100000);
}

// Every row of the reference values that were made by running the original planner.
TEST(OriginalSearch, EqualsEveryRowOfTheReference) {
  const auto file = kData / "reference/pipedream_optimizer.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is absent";
  std::istringstream lines(read_file(file));
  std::string line;
  std::getline(lines, line);
  std::map<std::string, OriginalStates> states;
  int rows = 0;
  while (std::getline(lines, line)) {
    const auto row = split(line, ',');
    if (row.size() < 12) continue;
    if (!states.count(row[0])) states.emplace(row[0], states_of(row[0]));
    const OriginalStates& own = states.at(row[0]);
    EXPECT_EQ(own.size(), std::stoi(row[5])) << line;
    const OriginalOptions options = options_of(row);
    const auto plan = search_original(own, options);
    ASSERT_TRUE(plan.has_value()) << line;
    const double expected = std::stod(row[9]);
    EXPECT_NEAR(plan->time_s, expected, 1e-6 * expected) << line;
    EXPECT_NEAR(own.compute_s.back(), std::stod(row[8]), 1e-6 * own.compute_s.back()) << line;
    EXPECT_NEAR(own.compute_s.back() / original_data_parallel_s(own, options), std::stod(row[11]), 1e-6 * std::stod(row[11])) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 126);
}

struct PrintedRow {
  const char* model;
  std::vector<OriginalLevel> levels;
  double time_s;
};

// The formula as printed in the paper: the table of pipedream.md section 3.2.
TEST(OriginalSearch, EqualsTheTableOfThePrintedFormula) {
  if (!std::filesystem::exists(kData / "profiles")) GTEST_SKIP() << "the profiles are absent";
  const std::vector<PrintedRow> rows{{"vgg16", {{4, 1e9}}, 0.205520896},
                                     {"vgg16", {{4, 1.25e9}}, 0.171412667},
                                     {"vgg16", {{8, 1.25e9}}, 0.0888742857},
                                     {"vgg16", {{16, 1.25e9}}, 0.0822083584},
                                     {"vgg16", {{16, 3.125e9}}, 0.0423406},
                                     {"alexnet", {{16, 1.25e9}}, 0.0150994944},
                                     {"resnet50", {{4, 1.25e9}}, 0.1226737536},
                                     {"resnet50", {{16, 1.25e9}}, 0.0822083584},
                                     {"resnet50", {{8, 30e9}, {2, 3.125e9}}, 0.03271300096},
                                     {"resnet50", {{4, 12e9}, {2, 1.25e9}}, 0.0817825024},
                                     {"resnet50", {{4, 12e9}, {4, 1.25e9}}, 0.0752257024},
                                     {"vgg16", {{4, 12e9}, {4, 1.25e9}}, 0.0627826688},
                                     {"vgg16", {{8, 30e9}, {2, 3.125e9}}, 0.06576668672},
                                     {"gnmt", {{4, 1.25e9}}, 0.025868},
                                     {"gnmt", {{16, 1.25e9}}, 0.019285},
                                     {"gnmt_large", {{16, 1.25e9}}, 0.04194304},
                                     {"gnmt_large", {{16, 3.125e9}}, 0.039823}};
  for (const PrintedRow& row : rows) {
    const auto states = original_states(load_profile((kData / "profiles" / (std::string(row.model) + ".graph.txt")).string()), 100000);
    OriginalOptions options;
    options.levels = row.levels;
    options.printed_formula = true;
    const auto plan = search_original(*states, options);
    ASSERT_TRUE(plan.has_value());
    EXPECT_NEAR(plan->time_s, row.time_s, 1e-6 * row.time_s) << row.model << " " << row.levels.front().machines << " " << row.levels.size();
  }
}

}  // namespace
}  // namespace pipedream
