#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "cli/commands.hpp"
#include "cli/schedule_options.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/report/chakra.hpp"
#include "pipedream/report/compare_schedules.hpp"
#include "pipedream/report/schedule_grid.hpp"
#include "pipedream/report/schedule_table.hpp"
#include "pipedream/report/schedules_document.hpp"
#include "pipedream/report/timeline_html.hpp"
#include "pipedream/schedule/csv.hpp"

namespace pipedream::cli {
namespace {

struct Settings {
  ScheduleOptions schedule;
  std::string csv_file, csv_form = "full", trace_file, html_file, chakra_prefix, compare;
  bool json = false, document = false;
};

constexpr int kStepsCompared = 4;  // an endless schedule is compared in its steady state, not in its fill

CsvForm form_of(const std::string& name) { return name == "torch" ? CsvForm::Torch : name == "compute" ? CsvForm::Compute : CsvForm::Full; }

// Costs as small as a slot keep the grid readable where nothing was said about time.
void print_schedule(const TimedSchedule& timed, const SimulationResult& result) {
  const Schedule& schedule = timed.schedule;
  fmt::print("{} ({}): {} ranks, {} chunks, {} micro-batches, {} per step, {} actions\n", schedule.name, schedule.policy, schedule.num_ranks(),
             schedule.num_chunks(), schedule.micro_batches, schedule.step_micro_batches, format_count(num_actions(schedule)));
  GridOptions grid;
  grid.color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  fmt::print("\n{}\n", schedule_grid(result.trace, grid));
  fmt::print(
      "valid: every micro-batch once forward and once backward on every chunk, and no rank can hang with unlimited buffers, with 2 per link, or with "
      "none\n\n");
  fmt::print("{}\n{}", figures_text(schedule, result), rank_table(result).text());
}

std::vector<std::string> compared_names(const std::string& text) {
  std::vector<std::string> names;
  if (text == "all") {
    for (const ScheduleInfo& info : list_schedules()) names.push_back(info.name);
    return names;
  }
  std::string_view rest = text;
  for (std::size_t end = rest.find(','); end != std::string_view::npos; end = rest.find(',')) {
    names.emplace_back(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  names.emplace_back(rest);
  return names;
}

// The same ranks, micro-batches and costs for every schedule; those that cannot run say why.
void compare(const Settings& settings) {
  std::vector<ComparedSchedule> results;
  const auto add = [&](const std::string& name, const std::string& policy) {
    ScheduleOptions options = settings.schedule;
    options.policy = policy;
    if (name == "1f1b-async" && policy != "2bw" && options.steps == 0) options.micro_batches *= kStepsCompared;
    try {
      const TimedSchedule timed = timed_schedule(options, name);
      SimulationOptions costs = timed.costs;
      costs.keep_trace = false;
      results.push_back(compared(timed.schedule, simulate(timed.schedule, costs)));
    } catch (const InternalError&) {
      throw;
    } catch (const Error& error) {
      ComparedSchedule failed;
      failed.name = name;
      failed.policy = policy.empty() ? find_schedule(name).default_policy : policy;
      failed.reason = error.what();
      results.push_back(failed);
    }
  };
  for (const std::string& name : compared_names(settings.compare)) {
    static_cast<void>(find_schedule(name));
    add(name, "");
    if (name == "1f1b-async") add(name, "2bw");
  }
  fmt::print("{}", comparison_table(results).text());
  fmt::print("\nactivations: of a rank's whole share of the model, for one micro-batch; copies: of the model over all ranks\n");
}

void run(const Settings& settings) {
  if (settings.document) {
    fmt::print("{}", schedules_document());
    return;
  }
  if (!settings.compare.empty()) return compare(settings);
  const TimedSchedule timed = timed_schedule(settings.schedule);
  const SimulationResult result = simulate(timed.schedule, timed.costs);
  if (!settings.csv_file.empty()) write_file(settings.csv_file, schedule_to_csv(timed.schedule, form_of(settings.csv_form)));
  if (!settings.trace_file.empty()) write_file(settings.trace_file, trace_to_chrome_json(result.trace));
  if (!settings.html_file.empty()) write_file(settings.html_file, timeline_html({{timed.schedule.name, result.trace}}));
  if (!settings.chakra_prefix.empty()) {
    const std::vector<std::string> traces = chakra_traces(timed.schedule, timed.costs);
    for (std::size_t rank = 0; rank < traces.size(); ++rank) write_file(fmt::format("{}.{}.et", settings.chakra_prefix, rank), traces[rank]);
  }
  if (settings.csv_file == "-" || settings.trace_file == "-" || settings.html_file == "-") return;
  if (settings.json) fmt::print("{}", schedule_to_json(timed.schedule, result));
  else print_schedule(timed, result);
}

}  // namespace

void add_schedule(CLI::App& app) {
  auto settings = std::make_shared<Settings>();
  CLI::App* command = app.add_subcommand("schedule", "generate a schedule, print it as a grid, prove that it cannot hang");
  add_options(*command, settings->schedule);
  command->add_option("--csv", settings->csv_file, "write the actions ('-' is stdout)");
  command->add_option("--csv-form", settings->csv_form, "full, torch, compute")->check(CLI::IsMember({"full", "torch", "compute"}));
  command->add_option("--trace", settings->trace_file, "write a Chrome/Perfetto trace");
  command->add_option("--html", settings->html_file, "write a timeline that opens in a browser");
  command->add_option("--chakra", settings->chakra_prefix, "write execution traces for ASTRA-sim to PREFIX.RANK.et");
  command->add_option("--compare", settings->compare, "one table of these schedules (comma separated) or 'all'");
  command->add_flag("--document", settings->document, "print the page docs/schedules.md");
  command->add_flag("--json", settings->json, "print figures as JSON");
  command->footer(
      "Examples:\n  pipedream schedule --schedule 1f1b-async --stages 2-1-1 --micro-batches 12\n  pipedream schedule --schedule gpipe --ranks 4 "
      "--micro-batches 8 --costs 10,14,6,1 --html t.html");
  command->callback([settings] { run(*settings); });
}

}  // namespace pipedream::cli
