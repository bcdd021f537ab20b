#include <fmt/format.h>

#include "pipedream/model/zoo.hpp"

namespace pipedream {

// `layers` hidden layers of `width` and a last layer to the classes.
Model zoo::make_mlp(NamedSpec& spec, const ModelContext& context) {
  const ImageShape shape = image_shape(spec, context, 28, 1);
  const std::int64_t layers = spec.integer("layers", 8, 1, 10000);
  const std::int64_t width = spec.integer("width", 1024, 1, 1 << 20);
  const double probability = spec.number("dropout", 0, 0, 0.99);
  ModelBuilder b("mlp");
  const InputRef image = b.input("image", {shape.channels, shape.size, shape.size});
  const InputRef target = b.input("target", {}, at::kLong);
  InputRef x = b.add("flatten", flatten(), {image});
  std::int64_t in = shape.channels * shape.size * shape.size;
  for (std::int64_t i = 1; i <= layers; ++i) {
    LinearOptions options;
    options.weight_initial = Initial::kaiming_normal(in);  // keeps the signal through many ReLU layers, which torch's default does not
    x = b.add(fmt::format("fc{}", i), linear(in, width, options), {x});
    x = b.add(fmt::format("relu{}", i), relu(), {x});
    if (probability > 0) x = b.add(fmt::format("dropout{}", i), dropout(probability), {x});
    in = width;
  }
  return finish_classifier(b, b.add("head", linear(in, shape.classes), {x}), target);
}

}  // namespace pipedream
