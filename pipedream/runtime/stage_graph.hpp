#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pipedream/model/model.hpp"

namespace pipedream {

/// An output of a layer that a chunk receives from another chunk.
struct CrossingTensor {
  int layer = 0;
  int output = 0;
  auto operator<=>(const CrossingTensor&) const = default;
};

/// What crosses from one chunk to another, straight from the chunk that makes it: a skip edge is not relayed.
struct ChunkEdge {
  int source = 0, target = 0;
  std::vector<CrossingTensor> tensors;  ///< ascending; a message holds them in this order
};

/// The layers of one chunk.
struct ChunkLayers {
  std::vector<int> nodes;         ///< indices into Model::nodes, ascending, so topological
  std::vector<int> model_inputs;  ///< inputs of the model that this chunk reads from the data itself, ascending
  bool has_loss = false;
};

/// A model cut into chunks.
struct StageGraph {
  std::vector<ChunkLayers> chunks;
  std::vector<ChunkEdge> edges;  ///< ascending by (source, target)

  [[nodiscard]] std::vector<std::pair<int, int>> edge_list() const;
  [[nodiscard]] const ChunkEdge& edge(int source, int target) const;
};

/// Cuts a model. `stages` are layer names per chunk; every layer is in exactly one, and data flows from earlier chunks to later ones.
/// @throws InputError naming the layer and the chunk that break this
[[nodiscard]] StageGraph cut_model(const Model& model, const std::vector<std::vector<std::string>>& stages);

}  // namespace pipedream
