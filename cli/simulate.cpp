#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/schedule_options.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/report/schedule_table.hpp"
#include "pipedream/report/timeline_html.hpp"
#include "pipedream/schedule/csv.hpp"

namespace pipedream::cli {
namespace {

struct Settings {
  ScheduleOptions schedule;
  std::string csv_file, trace_file, html_file;
  bool json = false;
};

void run(const Settings& settings) {
  const TimedSchedule timed = timed_schedule(settings.schedule);
  const SimulationResult result = simulate(timed.schedule, timed.costs);
  if (!settings.csv_file.empty()) write_file(settings.csv_file, schedule_to_csv(timed.schedule));
  if (!settings.trace_file.empty()) write_file(settings.trace_file, trace_to_chrome_json(result.trace));
  if (!settings.html_file.empty()) write_file(settings.html_file, timeline_html({{timed.schedule.name, result.trace}}));
  if (settings.csv_file == "-" || settings.trace_file == "-" || settings.html_file == "-") return;
  if (settings.json) {
    fmt::print("{}", simulation_to_json(result));
    return;
  }
  fmt::print("{}\n{}", figures_text(timed.schedule, result), rank_table(result).text());
  if (const Table links = link_table(result); !links.empty()) fmt::print("\n{}", links.text());
  fmt::print("\n{}", critical_path_text(result));
}

}  // namespace

void add_simulate(CLI::App& app) {
  auto settings = std::make_shared<Settings>();
  CLI::App* command = app.add_subcommand("simulate", "time a plan or a schedule without running it");
  add_options(*command, settings->schedule);
  command->add_option("--csv", settings->csv_file, "write the actions ('-' is stdout)");
  command->add_option("--trace", settings->trace_file, "write a Chrome/Perfetto trace");
  command->add_option("--html", settings->html_file, "write a timeline that opens in a browser");
  command->add_flag("--json", settings->json, "print the figures as JSON");
  command->footer(
      "Examples:\n  pipedream simulate plan.json --profile profile.json --cluster cluster.toml --trace t.json\n  pipedream simulate --schedule 1f1b "
      "--ranks 4 --micro-batches 8 --costs 10,14,6,1 --json");
  command->callback([settings] { run(*settings); });
}

}  // namespace pipedream::cli
