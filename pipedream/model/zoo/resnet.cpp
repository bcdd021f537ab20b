#include <fmt/format.h>

#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

// Layers have torchvision's names, so that parameter "layer1.0.conv1" + ".weight" is the same one there.
struct ResNetMaker {
  ModelBuilder& b;

  InputRef convolution(const std::string& name, InputRef x, std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride) {
    ConvOptions options;
    options.stride = stride;
    options.padding = kernel / 2;
    options.bias = false;
    options.weight_initial = Initial::kaiming_normal(out * kernel * kernel);
    return b.add(name, conv2d(in, out, kernel, options), {x});
  }

  InputRef normalized_relu(const std::string& block, const std::string& number, InputRef x, std::int64_t channels) {
    x = b.add(block + "bn" + number, batch_norm2d(channels), {x});
    return b.add(block + "relu" + number, relu(), {x});
  }

  InputRef shortcut(const std::string& block, InputRef x, std::int64_t in, std::int64_t out, std::int64_t stride) {
    if (in == out && stride == 1) return x;
    const InputRef y = convolution(block + "downsample.0", x, in, out, 1, stride);
    return b.add(block + "downsample.1", batch_norm2d(out), {y});
  }

  InputRef basic_block(const std::string& block, InputRef x, std::int64_t in, std::int64_t out, std::int64_t stride) {
    InputRef y = normalized_relu(block, "1", convolution(block + "conv1", x, in, out, 3, stride), out);
    y = b.add(block + "bn2", batch_norm2d(out), {convolution(block + "conv2", y, out, out, 3, 1)});
    return b.add(block + "relu", relu(), {b.add(block + "add", add(), {y, shortcut(block, x, in, out, stride)})});
  }

  InputRef bottleneck(const std::string& block, InputRef x, std::int64_t in, std::int64_t out, std::int64_t stride) {
    const std::int64_t middle = out / 4;
    InputRef y = normalized_relu(block, "1", convolution(block + "conv1", x, in, middle, 1, 1), middle);
    y = normalized_relu(block, "2", convolution(block + "conv2", y, middle, middle, 3, stride), middle);
    y = b.add(block + "bn3", batch_norm2d(out), {convolution(block + "conv3", y, middle, out, 1, 1)});
    return b.add(block + "relu", relu(), {b.add(block + "add", add(), {y, shortcut(block, x, in, out, stride)})});
  }
};

}  // namespace

Model zoo::make_resnet(NamedSpec& spec, const ModelContext& context) {
  const ImageShape shape = image_shape(spec, context, 224, 8);
  const std::int64_t width = spec.integer("width", 64, 1, 4096);
  const bool deep = spec.name() == "resnet50";
  const std::vector<int> blocks = deep ? std::vector<int>{3, 4, 6, 3} : std::vector<int>{2, 2, 2, 2};
  ModelBuilder b(spec.name());
  ResNetMaker maker{b};
  const InputRef image = b.input("image", {shape.channels, shape.size, shape.size});
  const InputRef target = b.input("target", {}, at::kLong);
  // Under 64 pixels the first layers of the large form would leave nothing: the usual 3x3 convolution without pooling.
  const bool small = shape.size < 64;
  InputRef x = maker.convolution("conv1", image, shape.channels, width, small ? 3 : 7, small ? 1 : 2);
  x = maker.normalized_relu("", "1", x, width);
  if (!small) x = b.add("maxpool", max_pool2d(3, 2, 1), {x});
  std::int64_t in = width;
  for (std::size_t group = 0; group < blocks.size(); ++group) {
    const std::int64_t out = (width << group) * (deep ? 4 : 1);
    for (int i = 0; i < blocks[group]; ++i) {
      const std::string name = fmt::format("layer{}.{}.", group + 1, i);
      const std::int64_t stride = group > 0 && i == 0 ? 2 : 1;
      x = deep ? maker.bottleneck(name, x, in, out, stride) : maker.basic_block(name, x, in, out, stride);
      in = out;
    }
  }
  x = b.add("avgpool", adaptive_avg_pool2d(1), {x});
  x = b.add("flatten", flatten(), {x});
  return finish_classifier(b, b.add("fc", linear(in, shape.classes), {x}), target);
}

}  // namespace pipedream
