#include <fmt/format.h>

#include <string>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/graph/profile.hpp"

namespace pipedream {
namespace {

constexpr const char* kSchema = "pipedream.profile/1";

Json layer_to_json(const LayerProfile& layer) {
  Json json;
  json["name"] = layer.name;
  if (!layer.description.empty()) json["description"] = layer.description;
  json["forward_ms"] = layer.forward_ms;
  json["backward_ms"] = layer.backward_ms;
  if (layer.backward_input_ms) json["backward_input_ms"] = *layer.backward_input_ms;
  if (layer.backward_weight_ms) json["backward_weight_ms"] = *layer.backward_weight_ms;
  json["update_ms"] = layer.update_ms;
  json["output_bytes"] = layer.output_bytes;
  if (layer.stashed_bytes) json["stashed_bytes"] = *layer.stashed_bytes;
  json["parameter_bytes"] = layer.parameter_bytes;
  if (layer.stage_id) json["stage_id"] = *layer.stage_id;
  return json;
}

double optional_number(const JsonView& view, const std::string& key) {
  const auto found = view.find(key);
  return found ? found->number(0) : 0;
}

LayerProfile layer_from_json(const JsonView& view) {
  LayerProfile layer;
  layer.name = view.at("name").string();
  if (const auto found = view.find("description")) layer.description = found->string();
  layer.forward_ms = view.at("forward_ms").number(0);
  layer.backward_ms = view.at("backward_ms").number(0);
  if (const auto found = view.find("backward_input_ms")) layer.backward_input_ms = found->number(0);
  if (const auto found = view.find("backward_weight_ms")) layer.backward_weight_ms = found->number(0);
  layer.update_ms = optional_number(view, "update_ms");
  for (const JsonView& bytes : view.at("output_bytes").elements()) layer.output_bytes.push_back(bytes.integer(0));
  if (const auto found = view.find("stashed_bytes")) layer.stashed_bytes = found->integer(0);
  layer.parameter_bytes = view.at("parameter_bytes").integer(0);
  if (const auto found = view.find("stage_id")) layer.stage_id = found->index();
  return layer;
}

using Names = std::unordered_map<std::string, int>;

int layer_named(const JsonView& view, const Names& names) {
  const auto at = names.find(view.string());
  if (at == names.end()) view.fail(fmt::format("no layer is named '{}'", view.string()), "edges and ties name layers as \"layers\" does");
  return at->second;
}

ProfileEdge edge_from_json(const JsonView& view, const Names& names) {
  ProfileEdge edge;
  edge.source = layer_named(view.at("source"), names);
  edge.target = layer_named(view.at("target"), names);
  if (const auto found = view.find("output")) edge.output = static_cast<int>(found->integer(ProfileEdge::kAllOutputs));
  return edge;
}

ParameterTie tie_from_json(const JsonView& view, const Names& names) {
  ParameterTie tie;
  for (const JsonView& layer : view.at("layers").elements()) tie.layers.push_back(layer_named(layer, names));
  tie.bytes = view.at("bytes").integer(0);
  return tie;
}

}  // namespace

std::string profile_to_json(const Profile& profile) {
  Json json;
  json["schema"] = kSchema;
  json["model"] = profile.model;
  json["device"] = profile.device;
  json["optimizer"] = profile.optimizer;
  json["micro_batch"] = profile.micro_batch;
  json["layers"] = Json::array();
  for (const LayerProfile& layer : profile.layers) json["layers"].push_back(layer_to_json(layer));
  json["edges"] = Json::array();
  for (const ProfileEdge& edge : profile.edges) {
    Json item;
    item["source"] = profile.layers.at(static_cast<std::size_t>(edge.source)).name;
    item["target"] = profile.layers.at(static_cast<std::size_t>(edge.target)).name;
    item["output"] = edge.output;
    json["edges"].push_back(std::move(item));
  }
  json["ties"] = Json::array();
  for (const ParameterTie& tie : profile.ties) {
    Json item;
    item["layers"] = Json::array();
    for (const int layer : tie.layers) item["layers"].push_back(profile.layers.at(static_cast<std::size_t>(layer)).name);
    item["bytes"] = tie.bytes;
    json["ties"].push_back(std::move(item));
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Profile profile_from_json(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonView view(json, file);
  require_schema(view, kSchema);
  Profile profile;
  if (const auto found = view.find("model")) profile.model = found->string();
  if (const auto found = view.find("device")) profile.device = found->string();
  if (const auto found = view.find("optimizer")) profile.optimizer = found->string();
  if (const auto found = view.find("micro_batch")) profile.micro_batch = found->index();
  Names names;
  for (const JsonView& layer : view.at("layers").elements()) {
    profile.layers.push_back(layer_from_json(layer));
    if (!names.emplace(profile.layers.back().name, profile.num_layers() - 1).second)
      layer.fail(fmt::format("two layers are named '{}'", profile.layers.back().name), "give every layer a name of its own");
  }
  for (const JsonView& edge : view.at("edges").elements()) profile.edges.push_back(edge_from_json(edge, names));
  if (const auto ties = view.find("ties"))
    for (const JsonView& tie : ties->elements()) profile.ties.push_back(tie_from_json(tie, names));
  validate(profile, file);
  return profile;
}

}  // namespace pipedream
