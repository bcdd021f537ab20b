#include "cli/plan_output.hpp"

#include <fmt/format.h>

#include <sstream>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream::cli {
namespace {

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    text += (text.empty() ? "" : ",") + (end > i ? fmt::format("{}-{}", ranks[i], ranks[end]) : fmt::format("{}", ranks[i]));
    i = end + 1;
  }
  return text.size() > 16 ? text.substr(0, 13) + "..." : text;
}

}  // namespace

std::vector<std::string> split_commas(const std::vector<std::string>& values) {
  std::vector<std::string> parts;
  for (const std::string& value : values) {
    std::istringstream text(value);
    for (std::string part; std::getline(text, part, ',');) parts.push_back(part);
    if (!value.empty() && value.back() == ',') parts.emplace_back();  // what is missing there is named by whoever reads it
  }
  return parts;
}

int parse_count(const std::string& text, const char* option) {
  try {
    std::size_t end = 0;
    const int value = std::stoi(text, &end);
    if (end == text.size()) return value;
  } catch (const std::exception&) {  // reported below, with the option's name
  }
  throw UsageError(fmt::format("{}: '{}' is no number of devices", option, text), "write it like 4, or 4,4 for two levels");
}

std::string layers_text(const std::vector<std::string>& layers) {
  std::string text = layers.size() == 1 ? layers.front() : fmt::format("{} .. {}", layers.front(), layers.back());
  if (text.size() > 34) text = text.substr(0, 31) + "...";
  return fmt::format("{} ({})", text, layers.size());
}

void print_stages(const Plan& plan) {
  fmt::print("{:>5} {:<42} {:>8} {:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11} {:>8}\n", "stage", "layers", "replicas", "ranks", "forward",
             "backward", "transfer", "reduce", "load", "memory", "versions");
  for (const StagePlan& stage : plan.stages) {
    const StagePrediction& p = stage.predicted;
    fmt::print("{:>5} {:<42} {:>8} {:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11} {:>8}{}\n", stage.name, layers_text(stage.layers),
               stage.replicas(), ranks_text(stage.ranks), format_ms(p.forward_ms), format_ms(p.backward_ms), format_ms(p.transfer_ms),
               format_ms(p.reduce_ms), format_ms(p.load_ms), format_bytes(static_cast<double>(p.memory_bytes)), p.versions,
               stage.recompute ? "  recompute" : "");
  }
}

}  // namespace pipedream::cli
