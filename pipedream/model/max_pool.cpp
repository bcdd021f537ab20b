#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pipedream/model/layers.hpp"
#include "pipedream/model/pool_kernels.hpp"

namespace pipedream {
namespace {

Planes planes_of(at::IntArrayRef shape) { return {shape[0] * shape[1], shape[2], shape[3]}; }

// Pooling of 2 x 2 pixels with stride 2 on float images that lie in memory plane by plane: libtorch's kernel works element by element and
// keeps a 64-bit index per output from forward to backward; this one is vectorized and keeps a byte. Same results: the first of equal
// values wins, a NaN stays one.
struct HalvingMaxPool : torch::autograd::Function<HalvingMaxPool> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& image) {
    const Planes planes = planes_of(image.sizes());
    const std::vector<std::int64_t> shape = {image.size(0), image.size(1), planes.out_height(), planes.out_width()};
    at::Tensor out = at::empty(shape, image.options());
    at::Tensor winners = at::empty(shape, image.options().dtype(at::kByte));
    pool_planes(image.data_ptr<float>(), out.data_ptr<float>(), winners.data_ptr<std::uint8_t>(), planes);
    context->save_for_backward({winners});
    context->saved_data["shape"] = image.sizes();
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context, torch::autograd::variable_list gradients) {
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor winners = context->get_saved_variables()[0];
    const std::vector<std::int64_t> shape = context->saved_data["shape"].toIntVector();
    const bool covered = shape[2] % 2 == 0 && shape[3] % 2 == 0;  // an odd last row or column has no part in any output
    at::Tensor result = covered ? at::empty(shape, gradient.options()) : at::zeros(shape, gradient.options());
    spread_planes(gradient.data_ptr<float>(), winners.data_ptr<std::uint8_t>(), result.data_ptr<float>(), planes_of(shape));
    return {result};
  }
};

bool halves(const at::Tensor& image, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return kernel == 2 && stride == 2 && padding == 0 && image.dim() == 4 && image.scalar_type() == at::kFloat && image.device().is_cpu() &&
         image.is_contiguous() && image.size(2) >= 2 && image.size(3) >= 2;
}

}  // namespace

LayerRecipe max_pool2d(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const std::string padded = padding ? fmt::format(", padding={}", padding) : "";
  return function(fmt::format("MaxPool2d(kernel_size={}, stride={}{})", kernel, stride, padded),
                  std::function<at::Tensor(const Tensors&)>([=](const Tensors& inputs) {
                    const at::Tensor& image = inputs.at(0);
                    return halves(image, kernel, stride, padding) ? HalvingMaxPool::apply(image) : at::max_pool2d(image, kernel, stride, padding);
                  }));
}

}  // namespace pipedream
