#include <ATen/ATen.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "pipedream/model/import/torch_operators.hpp"

/// Operators of newer versions of torch in terms of those of libtorch 1.13. They are registered with the dispatcher, so exported programs and
/// TorchScript find them alike, with autograd from the operators inside.
namespace pipedream {
namespace {

using OptionalTensor = TorchOptional<at::Tensor>;

/// torch/nn/functional.py gives this as the reference of the fused kernels; with dropout see random_operators.cpp.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& mask, double dropout, bool causal,
                     TorchOptional<double> scale, bool grouped) {
  at::Tensor k = key, v = value;
  if (grouped) {
    k = k.repeat_interleave(query.size(-3) / k.size(-3), -3);
    v = v.repeat_interleave(query.size(-3) / v.size(-3), -3);
  }
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  at::Tensor scores = at::matmul(query * factor, k.transpose(-2, -1));
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (causal)
    scores = scores.masked_fill(at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).tril().logical_not(), kMinusInfinity);
  if (mask) scores = mask->scalar_type() == at::kBool ? scores.masked_fill(mask->logical_not(), kMinusInfinity) : scores + *mask;
  at::Tensor weights = at::softmax(scores, -1);
  if (dropout > 0) weights = at::dropout(weights, dropout, /*train=*/true);
  return at::matmul(weights, v);
}

double machine_epsilon(c10::ScalarType type) {
  if (type == at::kDouble) return std::numeric_limits<double>::epsilon();
  if (type == at::kHalf) return 0x1.0p-10;
  if (type == at::kBFloat16) return 0x1.0p-7;
  return std::numeric_limits<float>::epsilon();
}

at::Tensor rms_norm(const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, TorchOptional<double> epsilon) {
  std::vector<std::int64_t> dimensions;
  for (std::int64_t d = x.dim() - static_cast<std::int64_t>(shape.size()); d < x.dim(); ++d) dimensions.push_back(d);
  const at::Tensor scale = at::rsqrt(x.square().mean(dimensions, /*keepdim=*/true) + epsilon.value_or(machine_epsilon(x.scalar_type())));
  return weight && weight->defined() ? x * scale * *weight : x * scale;
}

at::Tensor squeeze_dimensions(const at::Tensor& x, at::IntArrayRef dimensions) {
  std::vector<bool> squeezed(static_cast<std::size_t>(x.dim()), false);
  for (const std::int64_t d : dimensions) squeezed[static_cast<std::size_t>(d < 0 ? d + x.dim() : d)] = true;
  at::Tensor result = x;
  for (std::int64_t d = x.dim() - 1; d >= 0; --d) {
    if (squeezed[static_cast<std::size_t>(d)]) result = result.squeeze(d);
  }
  return result;
}

at::Tensor safe_softmax(const at::Tensor& x, std::int64_t dimension, TorchOptional<at::ScalarType> type) {
  const at::Tensor masked = (x == -std::numeric_limits<double>::infinity()).all(dimension, /*keepdim=*/true);
  return at::softmax(x, dimension, type).masked_fill(masked, 0);
}

at::Tensor any_dimensions(const at::Tensor& x, at::OptionalIntArrayRef dimensions, bool keep) {
  at::Tensor result = x != 0;
  if (!dimensions) return result.any();
  return result.to(at::kLong).sum(*dimensions, keep) > 0;
}

at::Tensor all_dimensions(const at::Tensor& x, at::OptionalIntArrayRef dimensions, bool keep) {
  at::Tensor result = x == 0;
  if (!dimensions) return result.any().logical_not();
  return result.to(at::kLong).sum(*dimensions, keep) == 0;
}

bool is_missing(const char* name, const char* overload = "") { return !c10::Dispatcher::singleton().findSchema({name, overload}).has_value(); }

/// Registers one operator if this libtorch lacks it. The library object must live as long as the program.
template <typename Function>
void add(std::vector<torch::Library>& libraries, const char* schema, const char* name, const char* overload, Function function) {
  if (!is_missing(name, overload)) return;
  libraries.emplace_back(torch::Library::FRAGMENT, "aten", kTorchNone, __FILE__, __LINE__);
  libraries.back().def(schema, torch::CppFunction(function));
}

bool register_all() {
  static std::vector<torch::Library> libraries;
  add(libraries,
      "scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, "
      "float? scale=None, bool enable_gqa=False) -> Tensor",
      "aten::scaled_dot_product_attention", "", attention);
  add(libraries, "rms_norm(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor", "aten::rms_norm", "", rms_norm);
  add(libraries, "squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)", "aten::squeeze", "dims", squeeze_dimensions);
  add(libraries, "_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor", "aten::_safe_softmax", "", safe_softmax);
  add(libraries, "any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", "aten::any", "dims", any_dimensions);
  add(libraries, "all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor", "aten::all", "dims", all_dimensions);
  return true;
}

}  // namespace

void register_missing_operators() {
  static const bool done = register_all();
  (void)done;
}

}  // namespace pipedream
