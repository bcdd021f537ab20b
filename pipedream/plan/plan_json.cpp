#include <fmt/format.h>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/plan/plan.hpp"

namespace pipedream {
namespace {

constexpr const char* kSchema = "pipedream.plan/1";

Json to_json(const StagePrediction& p) {
  return {{"forward_ms", p.forward_ms},     {"backward_ms", p.backward_ms}, {"update_ms", p.update_ms},
          {"transfer_ms", p.transfer_ms},   {"reduce_ms", p.reduce_ms},     {"load_ms", p.load_ms},
          {"memory_bytes", p.memory_bytes}, {"versions", p.versions},       {"in_flight", p.in_flight}};
}

Json to_json(const StagePlan& stage) {
  return {{"name", stage.name},   {"layers", stage.layers},       {"replicas", stage.replicas()},
          {"ranks", stage.ranks}, {"recompute", stage.recompute}, {"predicted", to_json(stage.predicted)}};
}

Json to_json(const Alternative& a) {
  Json json{{"name", a.name}, {"period_ms", a.period_ms}, {"feasible", a.feasible}};
  if (!a.reason.empty()) json["reason"] = a.reason;
  json["shape"] = a.shape;
  json["memory_bytes"] = a.memory_bytes;
  json["bytes_per_micro_batch"] = a.bytes_per_micro_batch;
  return json;
}

Json to_json(const PlanPrediction& p) {
  return {{"period_ms", p.period_ms},
          {"bound_ms", p.bound_ms},
          {"exposed_ms", p.exposed_ms},
          {"gap", p.gap()},
          {"certified", p.certified},
          {"bytes_per_micro_batch", p.bytes_per_micro_batch},
          {"data_parallel_bytes_per_micro_batch", p.data_parallel_bytes_per_micro_batch}};
}

double number_or(const JsonView& view, const char* key, double otherwise) {
  const auto found = view.find(key);
  return found ? found->number(0) : otherwise;
}
std::string text_or(const JsonView& view, const char* key, const std::string& otherwise) {
  const auto found = view.find(key);
  return found ? found->string() : otherwise;
}
int count_or(const JsonView& view, const char* key, int otherwise) {
  const auto found = view.find(key);
  return found ? found->index() : otherwise;
}

StagePrediction stage_prediction_from(const JsonView& view) {
  StagePrediction p;
  p.forward_ms = number_or(view, "forward_ms", 0);
  p.backward_ms = number_or(view, "backward_ms", 0);
  p.update_ms = number_or(view, "update_ms", 0);
  p.transfer_ms = number_or(view, "transfer_ms", 0);
  p.reduce_ms = number_or(view, "reduce_ms", 0);
  p.load_ms = number_or(view, "load_ms", 0);
  if (const auto found = view.find("memory_bytes")) p.memory_bytes = found->integer(0);
  p.versions = count_or(view, "versions", 1);
  p.in_flight = count_or(view, "in_flight", 1);
  return p;
}

StagePlan stage_from(const JsonView& view, std::size_t index) {
  StagePlan stage;
  stage.name = text_or(view, "name", std::to_string(index));
  for (const JsonView& layer : view.at("layers").elements()) stage.layers.push_back(layer.string());
  for (const JsonView& rank : view.at("ranks").elements()) stage.ranks.push_back(rank.index());
  if (const auto found = view.find("replicas"))
    if (found->index() != stage.replicas())
      found->fail(fmt::format("replicas is {}, but there are {} ranks", found->index(), stage.replicas()), "one rank per replica");
  if (const auto found = view.find("recompute")) stage.recompute = found->boolean();
  if (const auto found = view.find("predicted")) stage.predicted = stage_prediction_from(*found);
  return stage;
}

Alternative alternative_from(const JsonView& view) {
  Alternative a;
  a.name = view.at("name").string();
  a.period_ms = number_or(view, "period_ms", 0);
  if (const auto found = view.find("feasible")) a.feasible = found->boolean();
  a.reason = text_or(view, "reason", "");
  a.shape = text_or(view, "shape", "");
  if (const auto found = view.find("memory_bytes")) a.memory_bytes = found->integer(0);
  a.bytes_per_micro_batch = number_or(view, "bytes_per_micro_batch", 0);
  return a;
}

PlanPrediction prediction_from(const JsonView& view) {
  PlanPrediction p;
  p.period_ms = number_or(view, "period_ms", 0);
  p.bound_ms = number_or(view, "bound_ms", 0);
  p.exposed_ms = number_or(view, "exposed_ms", 0);
  if (const auto found = view.find("certified")) p.certified = found->boolean();
  p.bytes_per_micro_batch = number_or(view, "bytes_per_micro_batch", 0);
  p.data_parallel_bytes_per_micro_batch = number_or(view, "data_parallel_bytes_per_micro_batch", 0);
  return p;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json json{{"schema", kSchema},
            {"model", plan.model},
            {"schedule", plan.schedule},
            {"policy", plan.policy},
            {"cost_model", plan.cost_model},
            {"optimizer", plan.optimizer},
            {"micro_batch", plan.micro_batch},
            {"micro_batches", plan.micro_batches},
            {"chunks", plan.chunks}};
  json["stages"] = Json::array();
  for (const StagePlan& stage : plan.stages) json["stages"].push_back(to_json(stage));
  json["predicted"] = to_json(plan.predicted);
  json["alternatives"] = Json::array();
  for (const Alternative& alternative : plan.alternatives) json["alternatives"].push_back(to_json(alternative));
  json["search"] = {{"seconds", plan.search.seconds}, {"states", plan.search.states}};
  json["profile_fingerprint"] = plan.profile_fingerprint;
  json["cluster_fingerprint"] = plan.cluster_fingerprint;
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Plan plan_from_json(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonView view(json, file);
  require_schema(view, kSchema);
  Plan plan;
  plan.model = text_or(view, "model", "");
  plan.schedule = text_or(view, "schedule", plan.schedule);
  plan.policy = text_or(view, "policy", plan.policy);
  plan.cost_model = text_or(view, "cost_model", plan.cost_model);
  plan.optimizer = text_or(view, "optimizer", plan.optimizer);
  plan.micro_batch = count_or(view, "micro_batch", 0);
  plan.micro_batches = count_or(view, "micro_batches", 1);
  plan.chunks = count_or(view, "chunks", 1);
  const auto stages = view.at("stages").elements();
  for (std::size_t i = 0; i < stages.size(); ++i) plan.stages.push_back(stage_from(stages[i], i));
  if (const auto found = view.find("predicted")) plan.predicted = prediction_from(*found);
  if (const auto found = view.find("alternatives"))
    for (const JsonView& alternative : found->elements()) plan.alternatives.push_back(alternative_from(alternative));
  if (const auto found = view.find("search")) {
    plan.search.seconds = number_or(*found, "seconds", 0);
    if (const auto states = found->find("states")) plan.search.states = states->integer(0);
  }
  plan.profile_fingerprint = text_or(view, "profile_fingerprint", "");
  plan.cluster_fingerprint = text_or(view, "cluster_fingerprint", "");
  validate(plan, file);
  return plan;
}

Plan load_plan(const std::string& file) { return plan_from_json(read_file(file), file == "-" ? "standard input" : file); }

}  // namespace pipedream
