#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "pipedream/model/leaf_layer.hpp"

namespace torch::nn {
class Module;
}

/// Any torch::nn::Module as a layer. The header of the module's own class comes from you: torch/nn/module.h or one of torch/nn/modules/.
///
///   struct Block : torch::nn::Module { ... at::Tensor forward(at::Tensor x) { ... } };
///   auto y = builder.add("block", module<Block>(/*constructor arguments*/), {x});
///
/// The module's forward takes one to four tensors, or a `const Tensors&`; a last parameter `const ForwardContext&` is optional (for
/// dropout_mask, say). It returns a tensor, a pair or tuple of tensors, or `Tensors`. It must not change its inputs in place, and must
/// update buffers in place (a buffer that is assigned anew would no longer be shared by the weight versions).
namespace pipedream {
namespace detail {

/// A module instance and how to call it.
struct ModuleInstance {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&, const ForwardContext&)> forward;
  /// Replaces a member of the module by another tensor; false if it has no such member.
  std::function<bool(const std::string&, const at::Tensor&)> set;
};

[[nodiscard]] LayerRecipe module_recipe(std::string description, std::function<ModuleInstance()> make);

inline Tensors as_tensors(at::Tensor output) { return {std::move(output)}; }
inline Tensors as_tensors(Tensors outputs) { return outputs; }
template <typename... Ts>
Tensors as_tensors(const std::tuple<Ts...>& outputs) {
  return std::apply([](const auto&... tensors) { return Tensors{tensors...}; }, outputs);
}
inline Tensors as_tensors(const std::pair<at::Tensor, at::Tensor>& outputs) { return {outputs.first, outputs.second}; }

template <typename Module, std::size_t... I>
bool call_with(Module& module, const Tensors& inputs, const ForwardContext& context, Tensors& outputs, std::index_sequence<I...>) {
  if (inputs.size() != sizeof...(I)) return false;
  if constexpr (requires { module.forward(inputs[I]..., context); }) {
    outputs = as_tensors(module.forward(inputs[I]..., context));
    return true;
  } else if constexpr (requires { module.forward(inputs[I]...); }) {
    outputs = as_tensors(module.forward(inputs[I]...));
    return true;
  }
  return false;
}

[[nodiscard]] std::string readable_name(const std::type_info& type);
[[noreturn]] void no_such_forward(const std::string& type, std::size_t inputs);

template <typename Module>
Tensors call_module(Module& module, const Tensors& inputs, const ForwardContext& context, const std::string& type) {
  if constexpr (
      requires { module.forward(inputs, context); } && !requires { module.forward(at::Tensor(), at::Tensor()); }) {
    return as_tensors(module.forward(inputs, context));
  } else if constexpr (
      requires { module.forward(inputs); } && !requires { module.forward(at::Tensor()); }) {
    return as_tensors(module.forward(inputs));
  }
  Tensors outputs;
  if (call_with(module, inputs, context, outputs, std::make_index_sequence<1>()) ||
      call_with(module, inputs, context, outputs, std::make_index_sequence<2>()) ||
      call_with(module, inputs, context, outputs, std::make_index_sequence<3>()) ||
      call_with(module, inputs, context, outputs, std::make_index_sequence<4>()))
    return outputs;
  no_such_forward(type, inputs.size());
}

template <typename Module>
bool set_member(Module& module, const std::string& name, const at::Tensor& tensor) {
  if constexpr (requires {
                  { module.set_parameter(name, tensor) } -> std::convertible_to<bool>;
                }) {
    return module.set_parameter(name, tensor);
  }
  if constexpr (requires { module.weight = tensor; }) {
    if (name == "weight") return module.weight = tensor, true;
  }
  if constexpr (requires { module.bias = tensor; }) {
    if (name == "bias") return module.bias = tensor, true;
  }
  return false;
}

}  // namespace detail

/// A layer from a function that makes a module (a shared pointer to it).
template <typename Make>
[[nodiscard]] LayerRecipe module_from(std::string description, Make make) {
  return detail::module_recipe(description, [description, make] {
    auto module = make();
    return detail::ModuleInstance{module,
                                  [module, description](const Tensors& inputs, const ForwardContext& context) {
                                    return detail::call_module(*module, inputs, context, description);
                                  },
                                  [module](const std::string& name, const at::Tensor& tensor) { return detail::set_member(*module, name, tensor); }};
  });
}

/// A layer from a module class and the arguments of its constructor. For torch's own modules name the implementation: torch::nn::LinearImpl.
template <typename Module, typename... Args>
[[nodiscard]] LayerRecipe module(Args... args) {
  return module_from(detail::readable_name(typeid(Module)), [args...] { return std::make_shared<Module>(args...); });
}

}  // namespace pipedream
