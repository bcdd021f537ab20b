#include "pipedream/model/leaf_layer.hpp"

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

class LeafLayer final : public Layer {
 public:
  LeafLayer(std::shared_ptr<const LeafDefinition> definition, const LayerSeed& seed)
      : definition_(std::move(definition)), layer_key_(key_of(seed.layer)) {
    for (const ParameterSpec& spec : definition_->parameters) parameters_.push_back(initial_values(spec, seed).requires_grad_());
    for (const ParameterSpec& spec : definition_->buffers) buffers_.push_back(initial_values(spec, seed));
  }

  // Parameters are copied, buffers are the same tensors: running statistics belong to the layer, not to a version.
  LeafLayer(const LeafLayer& other, std::nullptr_t) : definition_(other.definition_), layer_key_(other.layer_key_), buffers_(other.buffers_) {
    for (const at::Tensor& parameter : other.parameters_) parameters_.push_back(parameter.detach().clone().requires_grad_());
  }

  Tensors forward(const Tensors& inputs, const ForwardContext& context) override {
    return definition_->forward({parameters_, buffers_, layer_key_}, inputs, context);
  }

  [[nodiscard]] std::vector<NamedTensor> parameters() const override { return named(definition_->parameters, parameters_); }
  [[nodiscard]] std::vector<NamedTensor> buffers() const override { return named(definition_->buffers, buffers_); }
  [[nodiscard]] std::unique_ptr<Layer> another_version() const override { return std::make_unique<LeafLayer>(*this, nullptr); }

  void set_parameter(std::size_t index, const at::Tensor& parameter) override {
    PD_CHECK(index < parameters_.size(), "parameter {} of {}", index, parameters_.size());
    PD_CHECK(parameter.sizes() == parameters_[index].sizes(), "parameter '{}' gets another shape", definition_->parameters[index].name);
    parameters_[index] = parameter;
  }

 private:
  static std::vector<NamedTensor> named(const std::vector<ParameterSpec>& specs, const Tensors& tensors) {
    std::vector<NamedTensor> result;
    for (std::size_t i = 0; i < specs.size(); ++i) result.push_back({specs[i].name, tensors[i]});
    return result;
  }

  std::shared_ptr<const LeafDefinition> definition_;
  std::uint64_t layer_key_;
  Tensors parameters_, buffers_;
};

}  // namespace

LayerRecipe leaf(std::string description, LeafDefinition definition) {
  auto shared = std::make_shared<const LeafDefinition>(std::move(definition));
  return {std::move(description), [shared](const LayerSeed& seed) { return std::make_unique<LeafLayer>(shared, seed); }};
}

LayerRecipe function(std::string description, std::function<Tensors(const Tensors&, const ForwardContext&)> forward) {
  return leaf(std::move(description),
              {{}, {}, [forward = std::move(forward)](const LeafState&, const Tensors& inputs, const ForwardContext& context) {
                 return forward(inputs, context);
               }});
}

LayerRecipe function(std::string description, std::function<at::Tensor(const Tensors&)> forward) {
  return leaf(std::move(description), {{}, {}, [forward = std::move(forward)](const LeafState&, const Tensors& inputs, const ForwardContext&) {
                                         return Tensors{forward(inputs)};
                                       }});
}

}  // namespace pipedream
