#include "pipedream/model/precision.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <fstream>

#include "pipedream/core/error.hpp"
#include "pipedream/model/torch_autocast.hpp"

namespace pipedream {

Precision parse_precision(const std::string& name) {
  if (name == "float32") return Precision::Float32;
  if (name == "bfloat16") return Precision::BFloat16;
  throw UsageError(fmt::format("there is no precision '{}'", name), "choose float32 or bfloat16");
}

std::string name_of(Precision precision) { return precision == Precision::BFloat16 ? "bfloat16" : "float32"; }

bool cores_have_bfloat16() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("flags") || line.starts_with("Features"))
      return line.find("avx512_bf16") != std::string::npos || line.find("amx_bf16") != std::string::npos || line.find(" bf16") != std::string::npos;
  return false;
}

Tensors run_layer(Layer& layer, const Tensors& inputs, const ForwardContext& context, bool is_loss) {
  if (context.precision == Precision::Float32) return layer.forward(inputs, context);
  if (is_loss) {
    Tensors exact = inputs;
    for (auto& input : exact)
      if (input.defined() && input.scalar_type() == at::kBFloat16) input = input.to(at::kFloat);
    return layer.forward(exact, context);
  }
  const bool has_input = !inputs.empty() && inputs[0].defined();
  const AutocastScope scope(has_input ? inputs[0].device().type() : at::kCPU, at::kBFloat16);
  return layer.forward(inputs, context);
}

}  // namespace pipedream
