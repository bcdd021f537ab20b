#include <fmt/format.h>

#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

// Names its layers "features.0", "features.1", ... as torchvision does.
struct AlexFeatures {
  ModelBuilder& builder;
  InputRef x;
  int next = 0;

  void add(LayerRecipe recipe) { x = builder.add(fmt::format("features.{}", next++), std::move(recipe), {x}); }
  void convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
    ConvOptions options;
    options.stride = stride;
    options.padding = padding;
    add(conv2d(in, out, kernel, options));
    add(relu());
  }
};

}  // namespace

Model zoo::make_alexnet(NamedSpec& spec, const ModelContext& context) {
  const ImageShape shape = image_shape(spec, context, 224, 32);
  const double probability = spec.number("dropout", 0.5, 0, 0.99);
  const bool small = shape.size < 64;  // the five convolutions fit, the poolings of 3 do not: pools of 2 and one linear layer instead
  const std::int64_t pool = small ? 2 : 3;
  ModelBuilder b("alexnet");
  const InputRef image = b.input("image", {shape.channels, shape.size, shape.size});
  const InputRef target = b.input("target", {}, at::kLong);
  AlexFeatures features{b, image};
  features.convolution(shape.channels, 64, 11, 4, small ? 5 : 2);
  features.add(max_pool2d(pool, 2));
  features.convolution(64, 192, 5, 1, 2);
  features.add(max_pool2d(pool, 2));
  features.convolution(192, 384, 3, 1, 1);
  features.convolution(384, 256, 3, 1, 1);
  features.convolution(256, 256, 3, 1, 1);
  features.add(max_pool2d(pool, 2));
  InputRef x = features.x;
  if (small) {
    x = b.add("avgpool", adaptive_avg_pool2d(1), {x});
    x = b.add("flatten", flatten(), {x});
    return finish_classifier(b, b.add("classifier", linear(256, shape.classes), {x}), target);
  }
  x = b.add("avgpool", adaptive_avg_pool2d(6), {x});
  x = b.add("flatten", flatten(), {x});
  x = b.add("classifier.0", dropout(probability), {x});
  x = b.add("classifier.1", linear(256 * 6 * 6, 4096), {x});
  x = b.add("classifier.2", relu(), {x});
  x = b.add("classifier.3", dropout(probability), {x});
  x = b.add("classifier.4", linear(4096, 4096), {x});
  x = b.add("classifier.5", relu(), {x});
  return finish_classifier(b, b.add("classifier.6", linear(4096, shape.classes), {x}), target);
}

}  // namespace pipedream
