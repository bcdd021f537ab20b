#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/report/table.hpp"
#include "pipedream/report/timeline_html.hpp"
#include "pipedream/sim/trace.hpp"

namespace pipedream::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string html;
  bool json = false;
};

/// A finished run as its directory tells it.
struct RunFiles {
  std::string name;
  Json summary;
  Plan plan;
};

RunFiles read_run(const std::string& folder) {
  const auto file = std::filesystem::path(folder) / "summary.json";
  if (!std::filesystem::exists(file))
    throw InputError(file.string(), "this is no directory of a finished run", "pipedream train --run DIR writes one; summary.json comes at its end");
  RunFiles run{folder, parse_json(read_file(file), file.string()), load_plan((std::filesystem::path(folder) / "plan.json").string())};
  require_schema(JsonView(run.summary, file.string()), "pipedream.summary/1");
  return run;
}

double number(const RunFiles& run, const char* key) {
  const JsonView view(run.summary, run.name + "/summary.json");
  const auto found = view.find(key);
  return found ? found->number() : 0;
}

void print_runs(const std::vector<RunFiles>& runs) {
  Table table({"run", "schedule", "shape", "steps", "samples/s", "period", "predicted", "ratio", "efficiency", "loss", "accuracy", "sent"});
  for (const auto& run : runs) {
    const double predicted = number(run, "predicted_period_ms"), period = number(run, "period_ms"), accuracy = number(run, "final_accuracy");
    table.add_row({run.name, run.plan.schedule, run.plan.shape(), fmt::format("{:.0f}", number(run, "steps")),
                   fmt::format("{:.0f}", number(run, "samples_per_s")), format_ms(period), format_ms(predicted),
                   predicted > 0 ? fmt::format("{:.3f}", period / predicted) : "-", fmt::format("{:.3f}", number(run, "efficiency")),
                   fmt::format("{:.4f}", number(run, "final_loss")), accuracy > 0 ? fmt::format("{:.2f} %", 100 * accuracy) : "-",
                   format_bytes(number(run, "bytes_sent"))});
  }
  fmt::print("{}", table.text());
}

void print_ranks(const RunFiles& run) {
  Table table({"rank", "stage", "compute", "idle", "waits to receive", "waits to send", "reduces", "memory", "predicted", "versions"});
  const JsonView view(run.summary, run.name + "/summary.json");
  for (const JsonView& rank : view.at("ranks").elements()) {
    const auto time = [&](const char* key) { return format_ms(rank.at(key).number()); };
    const auto stage = rank.find("stage");
    const auto predicted = rank.find("predicted_memory_bytes");
    table.add_row({std::to_string(rank.at("rank").index()), stage ? std::to_string(stage->index()) : "-", time("compute_ms"), time("idle_ms"),
                   time("receive_wait_ms"), time("send_wait_ms"), time("reduce_ms"), format_bytes(rank.at("peak_memory_bytes").number()),
                   predicted ? format_bytes(predicted->number()) : "-", std::to_string(rank.at("versions").index())});
  }
  fmt::print("\n{}\n{}", run.name, table.text());
}

void run_report(const ReportFlags& flags) {
  std::vector<RunFiles> runs;
  for (const auto& folder : flags.runs) runs.push_back(read_run(folder));
  if (!flags.html.empty()) {
    std::vector<NamedTrace> traces;
    for (const auto& run : runs) {
      const auto file = std::filesystem::path(run.name) / "trace.json";
      traces.push_back(
          {fmt::format("{}: {} {}", run.name, run.plan.schedule, run.plan.shape()), trace_from_chrome_json(read_file(file), file.string())});
    }
    write_file(flags.html, timeline_html(traces));
  }
  if (flags.json) {
    Json json = Json::array();
    for (const auto& run : runs) json.push_back({{"run", run.name}, {"summary", run.summary}, {"plan", Json::parse(plan_to_json(run.plan))}});
    fmt::print("{}\n", json.dump(2));
    return;
  }
  print_runs(runs);
  for (const auto& run : runs) print_ranks(run);
}

}  // namespace

void add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  CLI::App* command = app.add_subcommand("report", "tables and a timeline of one or more runs");
  command->add_option("RUN", flags->runs, "run directories")->required();
  command->add_option("--html", flags->html, "write a timeline that opens in a browser");
  command->add_flag("--json", flags->json, "print summaries and plans as JSON");
  command->footer("Examples:\n  pipedream report r\n  pipedream report r1 r2 --html timeline.html");
  command->callback([flags] { run_report(*flags); });
}

}  // namespace pipedream::cli
