#include "pipedream/runtime/stage_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

std::vector<int> chunk_of_layers(const Model& model, const std::vector<std::vector<std::string>>& stages) {
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) index[model.nodes[i].name] = static_cast<int>(i);
  std::vector<int> chunk_of(model.nodes.size(), -1);
  for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
    if (stages[chunk].empty()) throw InputError("plan", fmt::format("stage {} has no layers", chunk));
    for (const auto& name : stages[chunk]) {
      const auto found = index.find(name);
      if (found == index.end())
        throw InputError("plan", fmt::format("stage {} names the layer '{}', which the model {} does not have", chunk, name, model.name),
                         "make the plan from a profile of this model");
      int& place = chunk_of[static_cast<std::size_t>(found->second)];
      if (place >= 0) throw InputError("plan", fmt::format("the layer '{}' is in stage {} and in stage {}", name, place, chunk));
      place = static_cast<int>(chunk);
    }
  }
  for (std::size_t i = 0; i < chunk_of.size(); ++i)
    if (chunk_of[i] < 0)
      throw InputError("plan", fmt::format("the layer '{}' of the model {} is in no stage", model.nodes[i].name, model.name),
                       "make the plan from a profile of this model");
  return chunk_of;
}

}  // namespace

std::vector<std::pair<int, int>> StageGraph::edge_list() const {
  std::vector<std::pair<int, int>> list;
  for (const auto& edge : edges) list.emplace_back(edge.source, edge.target);
  return list;
}

const ChunkEdge& StageGraph::edge(int source, int target) const {
  const auto found = std::find_if(edges.begin(), edges.end(), [&](const ChunkEdge& e) { return e.source == source && e.target == target; });
  PD_CHECK(found != edges.end(), "no edge from chunk {} to chunk {}", source, target);
  return *found;
}

StageGraph cut_model(const Model& model, const std::vector<std::vector<std::string>>& stages) {
  const std::vector<int> chunk_of = chunk_of_layers(model, stages);
  StageGraph graph;
  graph.chunks.resize(stages.size());
  std::vector<std::set<int>> inputs(stages.size());
  std::map<std::pair<int, int>, std::set<CrossingTensor>> crossing;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const int chunk = chunk_of[i];
    graph.chunks[static_cast<std::size_t>(chunk)].nodes.push_back(static_cast<int>(i));
    for (const InputRef& input : model.nodes[i].inputs) {
      if (input.is_model_input()) {
        inputs[static_cast<std::size_t>(chunk)].insert(input.model_input_index());
        continue;
      }
      const int source = chunk_of[static_cast<std::size_t>(input.layer)];
      if (source == chunk) continue;
      if (source > chunk)
        throw InputError("plan",
                         fmt::format("the layer '{}' of stage {} reads '{}' of the later stage {}", model.nodes[i].name, chunk,
                                     model.nodes[static_cast<std::size_t>(input.layer)].name, source),
                         "order the stages so that data flows from earlier ones to later ones");
      crossing[{source, chunk}].insert({input.layer, input.output});
    }
  }
  for (std::size_t chunk = 0; chunk < stages.size(); ++chunk) {
    ChunkLayers& layers = graph.chunks[chunk];
    layers.has_loss = chunk_of[static_cast<std::size_t>(model.loss)] == static_cast<int>(chunk);
    // Whoever compares predictions with targets reads the targets too.
    if (model.prediction >= 0 && model.target >= 0 && chunk_of[static_cast<std::size_t>(model.prediction)] == static_cast<int>(chunk))
      inputs[chunk].insert(model.target);
    layers.model_inputs.assign(inputs[chunk].begin(), inputs[chunk].end());
  }
  for (const auto& [ends, tensors] : crossing) graph.edges.push_back({ends.first, ends.second, {tensors.begin(), tensors.end()}});
  return graph;
}

}  // namespace pipedream
