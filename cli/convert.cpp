#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "cli/commands.hpp"
#include "cli/quoted.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/graph/graph_txt.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/dnn_partitioning.hpp"
#include "pipedream/plan/piper_graph.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/schedule/csv.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream::cli {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string profile_to_dot(const Profile& profile) {
  std::string text = "digraph " + quoted(profile.model.empty() ? "model" : profile.model) + " {\n  node [shape=box];\n";
  for (const LayerProfile& layer : profile.layers)
    text +=
        fmt::format("  {} [label={}];\n", quoted(layer.name), quoted(fmt::format("{} {} + {} ms", layer.name, layer.forward_ms, layer.backward_ms)));
  for (const ProfileEdge& edge : profile.edges)
    text += fmt::format("  {} -> {};\n", quoted(profile.layers[static_cast<std::size_t>(edge.source)].name),
                        quoted(profile.layers[static_cast<std::size_t>(edge.target)].name));
  return text + "}\n";
}

Profile read_any(const std::string& file, const std::string& time_unit) {
  const std::string text = read_file(file), name = file == "-" ? "standard input" : file;
  if (looks_like_dnn_partitioning(text)) return read_dnn_partitioning(text, name).profile;
  if (looks_like_piper(text)) return profile_of_piper(read_piper(text, name), time_unit == "ms" ? 1 : 1000);
  return profile_from_text(text, name);
}

/// What torch.distributed.pipelining needs of a plan: split points by module path, ranks, and the schedule as its CSV (the second file).
std::string plan_to_torch_pipelining(const Plan& plan, const std::string& csv_file) {
  Json json{{"schema", "pipedream.torch-pipelining/1"},
            {"model", plan.model},
            {"schedule", plan.schedule},
            {"micro_batches", plan.micro_batches},
            {"csv", csv_file}};
  json["split_points"] = Json::array();  // the first layer of every stage but the first: split before it
  json["stages"] = Json::array();
  for (std::size_t k = 0; k < plan.stages.size(); ++k) {
    const std::string& first = plan.stages[k].layers.front();
    if (k > 0 && first.find_first_of("+@") != std::string::npos)
      throw UsageError(fmt::format("stage {} begins at '{}', which is no module: PyTorch splits before modules only", k, first),
                       "plan the model with whole modules as layers: --model FILE.pt2:granularity=block");
    if (k > 0) json["split_points"].push_back(first);
    json["stages"].push_back({{"layers", plan.stages[k].layers}, {"ranks", plan.stages[k].ranks}});
  }
  return json.dump(2) + "\n";
}

Schedule schedule_of_plan(const Plan& plan) {
  ScheduleRequest request;
  request.name = plan.schedule;
  request.policy = plan.policy;
  request.micro_batches = request.step_micro_batches = plan.micro_batches;
  for (const auto& stage : plan.stages) request.chunk_ranks.push_back(stage.ranks);
  return make_schedule(request);
}

void convert_plan(const Plan& plan, const std::string& out, const std::string& to) {
  if (to != "torch-pipelining") throw UsageError("a plan is converted to torch-pipelining only", "add --to torch-pipelining");
  if (plan.policy != "flush" || std::any_of(plan.stages.begin(), plan.stages.end(), [](const StagePlan& stage) { return stage.replicas() > 1; }))
    throw UsageError(fmt::format("torch.distributed.pipelining runs schedules that flush, without replicas; the plan is {} ({}), shape {}",
                                 plan.schedule, plan.policy, plan.shape()),
                     "plan with --schedule 1f1b or gpipe and --straight");
  const std::string csv = (out.size() > 5 && ends_with(out, ".json") ? out.substr(0, out.size() - 5) : out) + ".csv";
  write_file(csv, schedule_to_csv(schedule_of_plan(plan), CsvForm::Compute));
  write_file(out, plan_to_torch_pipelining(plan, std::filesystem::path(csv).filename()));
}

void convert_schedule(const std::string& in, const std::string& out, const std::string& to) {
  const Schedule schedule = schedule_from_csv(read_file(in), in);
  if (!to.empty() && to != "torch" && to != "torch-compute")
    throw UsageError(fmt::format("unknown form '{}' of a schedule", to), "choose torch or torch-compute");
  write_file(out, schedule_to_csv(schedule, to.empty() ? CsvForm::Full : to == "torch" ? CsvForm::Torch : CsvForm::Compute));
}

void run(const std::string& in, const std::string& out, const std::string& to, const std::string& time_unit) {
  if (ends_with(in, ".csv")) return convert_schedule(in, out, to);
  if (ends_with(in, ".json") && read_file(in).find("\"pipedream.plan/1\"") != std::string::npos) return convert_plan(load_plan(in), out, to);
  const Profile profile = read_any(in, time_unit);
  if (ends_with(out, ".json") || out == "-") write_file(out, profile_to_json(profile));
  else if (ends_with(out, ".txt")) write_file(out, profile_to_graph_txt(profile));
  else if (ends_with(out, ".dot")) write_file(out, profile_to_dot(profile));
  else
    throw UsageError(fmt::format("'{}': the ending does not say what to write", out),
                     "end it in .json (profile), .txt (graph.txt of the original) or .dot");
}

}  // namespace

void add_convert(CLI::App& app) {
  struct Files {
    std::string in, out, to, time_unit = "s";
  };
  auto files = std::make_shared<Files>();
  CLI::App* sub = app.add_subcommand("convert", "turn one form of a profile, schedule or plan into another, by file endings");
  sub->add_option("IN", files->in,
                  "profile JSON, graph.txt, a graph of dnn-partitioning or Piper, a schedule CSV (ours or PyTorch's), a plan; - is standard input")
      ->required();
  sub->add_option("OUT", files->out, "FILE.json, FILE.txt (graph.txt) or FILE.dot; - writes JSON to standard output")->required();
  sub->add_option("--to", files->to, "form: torch or torch-compute (schedule CSV), torch-pipelining (plan)");
  sub->add_option("--time-unit", files->time_unit, "of the times in a graph of Piper, which does not say: s or ms")
      ->check(CLI::IsMember({"s", "ms"}))
      ->capture_default_str();
  sub->footer("Examples:\n  pipedream convert vgg16.graph.txt vgg16.json\n  pipedream convert plan.json split.json --to torch-pipelining");
  sub->callback([files] { run(files->in, files->out, files->to, files->time_unit); });
}

}  // namespace pipedream::cli
