#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/plan/planner.hpp"
#include "pipedream/schedule/generate.hpp"
#ifdef PIPEDREAM_WITH_TORCH
#include "pipedream/data/data_set.hpp"
#include "pipedream/model/zoo.hpp"
#include "pipedream/runtime/optimizer.hpp"
#endif

namespace pipedream::cli {
namespace {

/// One thing that can be named on the command line, with whatever else there is to say.
struct ListEntry {
  std::string name, description;
  std::vector<std::pair<std::string, Json>> more;
};

struct ListSection {
  std::string name;
  std::vector<ListEntry> entries;
};

ListSection model_section() {
  ListSection section{"models", {}};
#ifdef PIPEDREAM_WITH_TORCH
  for (const ModelInfo& info : list_models()) section.entries.push_back({info.name, info.description, {{"options", info.options}}});
#endif
  return section;
}

ListSection data_section() {
  ListSection section{"data", {}};
#ifdef PIPEDREAM_WITH_TORCH
  for (const DataListing& data : list_data())
    section.entries.push_back({data.name, data.description, {{"options", data.options}, {"found", data.found}, {"where", data.where}}});
#endif
  return section;
}

ListSection schedule_section() {
  ListSection section{"schedules", {}};
  for (const ScheduleInfo& info : list_schedules()) section.entries.push_back({info.name, info.summary, {{"default_policy", info.default_policy}}});
  return section;
}

ListSection policy_section() {
  ListSection section{"policies", {}};
  for (const auto& [name, summary] : list_policies()) section.entries.push_back({name, summary, {}});
  return section;
}

ListSection planner_section() {
  ListSection section{"planners", {}};
  for (const PlannerInfo& info : list_planners()) section.entries.push_back({info.name, info.summary, {}});
  return section;
}

ListSection optimizer_section() {
  ListSection section{"optimizers", {}};
#ifdef PIPEDREAM_WITH_TORCH
  for (const auto& [name, summary] : list_optimizers()) section.entries.push_back({name, summary, {}});
#endif
  return section;
}

std::vector<ListSection> all_sections() {
  return {model_section(), data_section(), schedule_section(), policy_section(), planner_section(), optimizer_section()};
}

Json entry_json(const ListEntry& entry) {
  Json json{{"name", entry.name}, {"description", entry.description}};
  for (const auto& [key, value] : entry.more) json[key] = value;
  return json;
}

// "found" and "where" of data sets; options and the like follow the description.
std::string entry_details(const ListEntry& entry) {
  std::string text;
  for (const auto& [key, value] : entry.more) {
    if (key == "options" && value != "") text += fmt::format("  [{}]", value.get<std::string>());
    if (key == "where") text += fmt::format("  ({})", value.get<std::string>());
    if (key == "default_policy") text += fmt::format("  [policy {}]", value.get<std::string>());
  }
  return text;
}

void print_section(const ListSection& section) {
  fmt::print("{}:\n", section.name);
  if (section.entries.empty()) fmt::print("  none: this program was built without libtorch\n");
  std::size_t width = 0;
  for (const ListEntry& entry : section.entries) width = std::max(width, entry.name.size());
  for (const ListEntry& entry : section.entries) fmt::print("  {:{}}  {}{}\n", entry.name, width, entry.description, entry_details(entry));
}

void run_list(const std::string& what, bool json) {
  Json all = Json::object();
  bool first = true;
  for (const ListSection& section : all_sections()) {
    if (!what.empty() && what != section.name) continue;
    Json entries = Json::array();
    for (const ListEntry& entry : section.entries) entries.push_back(entry_json(entry));
    all[section.name] = entries;
    if (json) continue;
    if (!first) fmt::print("\n");
    print_section(section);
    first = false;
  }
  if (json) fmt::print("{}\n", (what.empty() ? all : all[what]).dump(2));
}

}  // namespace

void add_list(CLI::App& app) {
  auto what = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  std::vector<std::string> names;
  for (const ListSection& section : all_sections()) names.push_back(section.name);
  CLI::App* command = app.add_subcommand("list", "Lists what can be named in other commands");
  command->add_option("what", *what, "one list only")->check(CLI::IsMember(names));
  command->add_flag("--json", *json, "print JSON");
  command->footer("Examples:\n  pipedream list\n  pipedream list data --json");
  command->callback([what, json] { run_list(*what, *json); });
}

}  // namespace pipedream::cli
