#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/inspect_model.hpp"
#include "pipedream/checkpoint/safetensors.hpp"
#include "pipedream/cluster/cluster.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/core/mapped_file.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/report/table.hpp"
#include "pipedream/schedule/csv.hpp"
#include "pipedream/sim/trace.hpp"

namespace pipedream::cli {
namespace {

Json inspect_profile(const std::string& file) {
  const Profile profile = load_profile(file);
  Json result = {{"kind", "profile"},
                 {"model", profile.model},
                 {"device", profile.device},
                 {"micro_batch", profile.micro_batch},
                 {"layers", profile.num_layers()}};
  double forward = 0, backward = 0, parameters = 0;
  for (const LayerProfile& layer : profile.layers) {
    forward += layer.forward_ms;
    backward += layer.backward_ms;
    parameters += static_cast<double>(layer.parameter_bytes);
  }
  result["forward_ms"] = forward;
  result["backward_ms"] = backward;
  result["parameter_bytes"] = parameters;
  result["fingerprint"] = fingerprint(profile);
  return result;
}

Json inspect_plan(const std::string& file) {
  const Plan plan = load_plan(file);
  Json stages = Json::array();
  for (const StagePlan& stage : plan.stages)
    stages.push_back({{"name", stage.name}, {"ranks", stage.ranks}, {"layers", stage.layers.size()}, {"first", stage.layers.front()}});
  return {{"kind", "plan"},
          {"model", plan.model},
          {"schedule", plan.schedule},
          {"policy", plan.policy},
          {"ranks", plan.num_ranks()},
          {"micro_batch", plan.micro_batch},
          {"period_ms", plan.predicted.period_ms},
          {"stages", stages}};
}

Json inspect_cluster(const std::string& file) {
  const Cluster cluster = load_cluster(file);
  return {{"kind", "cluster"},
          {"devices", cluster.num_devices()},
          {"levels", cluster.levels.size()},
          {"links", cluster.links.size()},
          {"fingerprint", fingerprint(cluster)}};
}

Json inspect_schedule(const std::string& file) {
  const Schedule schedule = schedule_from_csv(read_file(file), file);
  std::int64_t actions = 0;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) for_each_action(schedule, rank, [&](const Action&) { ++actions; });
  return {{"kind", "schedule"},
          {"name", schedule.name},
          {"policy", schedule.policy},
          {"ranks", schedule.num_ranks()},
          {"chunks", schedule.num_chunks()},
          {"micro_batches", schedule.micro_batches},
          {"actions", actions}};
}

Json inspect_trace(const std::string& file) {
  const Trace trace = trace_from_chrome_json(read_file(file), file);
  double end = 0;
  for (const TimedAction& action : trace.actions) end = std::max(end, action.end_ms);
  return {{"kind", "trace"},          {"source", trace.source},          {"title", trace.title},
          {"ranks", trace.num_ranks}, {"actions", trace.actions.size()}, {"makespan_ms", end}};
}

Json inspect_weights(const std::string& file) {
  const SafetensorsFile weights = SafetensorsFile::open(file);
  Json tensors = Json::array();
  std::uint64_t bytes = 0;
  for (const SafetensorsEntry& entry : weights.entries()) {
    tensors.push_back({{"name", entry.name}, {"type", entry.type}, {"shape", entry.shape}});
    bytes += entry.bytes.size();
  }
  return {{"kind", "weights"}, {"tensors", tensors}, {"bytes", bytes}};
}

/// What a JSON file is, by its key "schema" or by what traces have.
Json inspect_json(const std::string& file) {
  const Json json = parse_json(read_file(file), file);
  if (json.is_object() && json.contains("schema") && json["schema"].is_string()) {
    const std::string schema = json["schema"];
    if (schema.starts_with("pipedream.profile/")) return inspect_profile(file);
    if (schema.starts_with("pipedream.plan/")) return inspect_plan(file);
    return {{"kind", schema}, {"keys", json.size()}};
  }
  if (json.is_array() || (json.is_object() && json.contains("traceEvents"))) return inspect_trace(file);
  throw InputError(file, "this JSON is no profile, plan or trace", "files of pipedream have a key \"schema\"");
}

Json inspect_file(const std::string& file) {
  const std::string start(MappedFile::open(file)->bytes().substr(0, 4096));
  const auto first = std::find_if(start.begin(), start.end(), [](char c) { return c != ' ' && c != '\n' && c != '\t' && c != '\r'; });
  if (first == start.end()) throw InputError(file, "the file is empty");
  if (file.ends_with(".safetensors") || (start.size() > 8 && start[8] == '{' && looks_like_safetensors(MappedFile::open(file)->bytes())))
    return inspect_weights(file);
  if (*first == '{' || *first == '[') {
    if (!file.ends_with(".toml")) return inspect_json(file);
  }
  if (file.ends_with(".toml")) return inspect_cluster(file);
  if (file.ends_with(".csv")) return inspect_schedule(file);
  return inspect_profile(file);  // the original's graph.txt, or an error that says what was expected
}

void print_value(const std::string& key, const Json& value) {
  if (!value.is_array() || value.empty() || !value.front().is_object()) {
    const bool is_bytes = key.ends_with("bytes") && value.is_number();
    fmt::print("{:16} {}\n", key, is_bytes ? format_bytes(value.get<double>()) : value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  std::vector<std::string> header;
  for (const auto& item : value.front().items()) header.push_back(item.key());
  Table table(header);
  for (const Json& row : value) {
    std::vector<std::string> cells;
    for (const auto& item : row.items()) cells.push_back(item.value().is_string() ? item.value().get<std::string>() : item.value().dump());
    table.add_row(std::move(cells));
  }
  fmt::print("\n{}\n", table.text());
}

void run_inspect(const std::string& spec, bool json) {
  const Json result = is_model_spec(spec) ? inspect_model(spec) : inspect_file(spec);
  if (json) {
    fmt::print("{}\n", result.dump(2, ' ', false, Json::error_handler_t::replace));
    return;
  }
  for (const auto& item : result.items()) print_value(item.key(), item.value());
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto file = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "inspect", "Shows what a file is: a model (layers, and what will not work), profile, plan, cluster, schedule, trace, weights");
  command->add_option("FILE", *file, "the file; a model may have options: m.pt2:granularity=block")->required();
  command->add_flag("--json", *json, "print it as JSON");
  command->footer("Examples:\n  pipedream inspect m.pt2:granularity=block\n  pipedream inspect plan.json --json");
  command->callback([file, json] { run_inspect(*file, *json); });
}

}  // namespace pipedream::cli
