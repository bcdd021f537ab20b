#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/model/layer.hpp"

namespace pipedream {

/// Where a layer's input comes from: output `output` of layer `layer`, or (layer < 0) an input of the model, ~layer being its index.
struct InputRef {
  int layer = 0;
  int output = 0;
  [[nodiscard]] static InputRef model_input(int index) { return {~index, 0}; }
  [[nodiscard]] bool is_model_input() const { return layer < 0; }
  [[nodiscard]] int model_input_index() const { return ~layer; }
  bool operator==(const InputRef&) const = default;
};

/// A named layer of a model.
struct LayerNode {
  std::string name;         ///< unique; the module path
  std::string description;  ///< "Conv2d(3, 64, kernel_size=3)"
  LayerFactory create;
  std::vector<InputRef> inputs;
  int num_outputs = 1;
};

/// Shape without the batch dimension, and type, of an input of a model. Targets are inputs as well: the loss is a layer that reads them.
struct TensorSpec {
  std::string name;  ///< "image", "tokens", "target"
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::int64_t limit = 0;  ///< integers lie in [0, limit): rows of the embedding, number of classes; 0: unknown
};

/// A parameter that several layers hold; the first one named gives the initial values.
struct WeightTie {
  struct Place {
    int layer = 0;
    std::string parameter;
  };
  std::vector<Place> places;
};

/// An entry of a model's state_dict: which tensor of which layer it is. `layer` < 0: no layer uses it, and `value` is what the file held. A key
/// whose tensor lies in several layers has an entry for each.
struct StateEntry {
  std::string key;  ///< "features.0.weight"
  int layer = -1;
  std::string tensor;  ///< name of the parameter or buffer within the layer
  at::Tensor value;
};

/// A DAG of named layers. Nodes are in topological order: a node reads earlier nodes and model inputs only. Every stage that needs a
/// model input reads it from the data itself; inputs and labels do not travel through the pipeline.
struct Model {
  std::string name;
  std::vector<TensorSpec> inputs;
  std::vector<LayerNode> nodes;
  std::vector<WeightTie> ties;
  int loss = -1;                  ///< the node whose output 0 is the mean loss over the micro-batch, a scalar
  int prediction = -1;            ///< the node whose output 0 [micro_batch, ..., classes] is compared with the target for accuracy; -1: none
  int target = -1;                ///< index in `inputs` of the target the accuracy is computed with; -1: none
  std::vector<StateEntry> state;  ///< of models read from a file; empty: the keys are "layer.parameter"
};

/// Checks names, references, ties, loss. @throws InternalError for a wrong reference, UsageError for what a user's own model can get wrong
void validate(const Model& model);

/// Makes models node by node, by hand:
///   ModelBuilder b("net"); auto x = b.input("image", {1, 28, 28}); auto y = b.add("fc", linear(784, 10), {x}); ...
class ModelBuilder {
 public:
  explicit ModelBuilder(std::string name) { model_.name = std::move(name); }

  InputRef input(std::string name, std::vector<std::int64_t> shape, at::ScalarType dtype = at::kFloat);
  InputRef add(std::string name, std::pair<std::string, LayerFactory> described_factory, std::vector<InputRef> inputs, int num_outputs = 1);
  void tie(InputRef a, const std::string& parameter_a, InputRef b, const std::string& parameter_b);
  /// Ends the model: `loss` gives the loss, `prediction` (optional) is compared with model input `target`.
  Model finish(InputRef loss, InputRef prediction, InputRef target);

 private:
  Model model_;
};

}  // namespace pipedream
