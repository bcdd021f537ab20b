#include "pipedream/model/torch_module_layer.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <c10/util/Type.h>
#include <torch/nn/module.h>

#include <mutex>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

// Modules draw their initial values from torch's global generator. It is seeded from (seed, layer name) for the construction and put back
// after it; the lock keeps other constructions of ours out.
detail::ModuleInstance construct(const std::function<detail::ModuleInstance()>& make, std::uint64_t key) {
  static std::mutex constructing;
  const std::lock_guard guard(constructing);
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  generator.set_current_seed(key);
  struct Restore {
    at::Generator& generator;
    const at::Tensor& state;
    ~Restore() { generator.set_state(state); }
  } restore{generator, state};
  return make();
}

class ModuleLayer final : public Layer {
 public:
  ModuleLayer(std::function<detail::ModuleInstance()> make, std::string description, std::uint64_t key)
      : make_(std::move(make)), description_(std::move(description)), key_(key), instance_(construct(make_, key)) {
    for (const auto& item : instance_.module->named_parameters())
      if (item.value().requires_grad()) parameters_.push_back({item.key(), item.value()});
    for (const auto& item : instance_.module->named_buffers()) buffers_.push_back({item.key(), item.value()});
  }

  Tensors forward(const Tensors& inputs, const ForwardContext& context) override {
    if (instance_.module->is_training() != context.training) instance_.module->train(context.training);
    if (!context.training || context.update_buffers || buffers_.empty()) return instance_.forward(inputs, context);
    Tensors kept;
    for (const NamedTensor& buffer : buffers_) kept.push_back(buffer.tensor.detach().clone());
    Tensors outputs = instance_.forward(inputs, context);
    // variable_data has a version counter of its own: the graph just recorded may have saved the buffers.
    for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].tensor.variable_data().copy_(kept[i]);
    return outputs;
  }

  [[nodiscard]] std::vector<NamedTensor> parameters() const override { return parameters_; }
  [[nodiscard]] std::vector<NamedTensor> buffers() const override { return buffers_; }

  // A module is not copyable in general (clone() asks for more than most users write), so another one is made and filled.
  [[nodiscard]] std::unique_ptr<Layer> another_version() const override {
    auto other = std::make_unique<ModuleLayer>(make_, description_, key_);
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) other->parameters_[i].tensor.copy_(parameters_[i].tensor);
    for (std::size_t i = 0; i < buffers_.size(); ++i) other->buffers_[i].tensor.set_data(buffers_[i].tensor);  // the same storage from now on
    return other;
  }

  void set_parameter(std::size_t index, const at::Tensor& parameter) override {
    PD_CHECK(index < parameters_.size(), "parameter {} of {}", index, parameters_.size());
    NamedTensor& own = parameters_[index];
    PD_CHECK(parameter.sizes() == own.tensor.sizes(), "parameter '{}' gets another shape", own.name);
    if (!instance_.set(own.name, parameter))
      throw UsageError(fmt::format("parameter '{}' of module {} is tied, but it cannot be replaced", own.name, description_),
                       "give the module a method bool set_parameter(const std::string& name, const at::Tensor& tensor)");
    own.tensor = parameter;
  }

 private:
  std::function<detail::ModuleInstance()> make_;
  std::string description_;
  std::uint64_t key_;
  detail::ModuleInstance instance_;
  std::vector<NamedTensor> parameters_, buffers_;
};

}  // namespace

LayerRecipe detail::module_recipe(std::string description, std::function<ModuleInstance()> make) {
  return {description, [description, make = std::move(make)](const LayerSeed& seed) {
            return std::make_unique<ModuleLayer>(make, description, combine_keys(mix_bits(seed.seed), key_of(seed.layer)));
          }};
}

std::string detail::readable_name(const std::type_info& type) { return c10::demangle(type.name()); }

void detail::no_such_forward(const std::string& type, std::size_t inputs) {
  throw UsageError(fmt::format("the forward of module {} cannot be called with {} tensor(s)", type, inputs),
                   "give it as many inputs in the model as its forward has, up to four, or let forward take const Tensors&");
}

}  // namespace pipedream
