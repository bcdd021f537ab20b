#include "pipedream/model/zoo.hpp"

namespace pipedream {

Model zoo::make_lenet(NamedSpec& spec, const ModelContext& context) {
  ModelContext natural = context;
  if (natural.sample_shape.empty()) natural.sample_shape = {1, 28, 28};
  if (natural.classes == 0) natural.classes = 10;
  const ImageShape shape = image_shape(spec, natural, 28, 28);
  ModelBuilder b("lenet");
  const InputRef image = b.input("image", {shape.channels, shape.size, shape.size});
  const InputRef target = b.input("target", {}, at::kLong);
  // The original's input of 32 pixels holds a 28 pixel image with a border.
  ConvOptions first;
  first.padding = shape.size < 32 ? 2 : 0;
  InputRef x = b.add("conv1", conv2d(shape.channels, 6, 5, first), {image});
  x = b.add("relu1", relu(), {x});
  x = b.add("pool1", max_pool2d(2, 2), {x});
  x = b.add("conv2", conv2d(6, 16, 5), {x});
  x = b.add("relu2", relu(), {x});
  x = b.add("pool2", max_pool2d(2, 2), {x});
  x = b.add("flatten", flatten(), {x});
  const std::int64_t side = ((shape.size + 2 * first.padding - 4) / 2 - 4) / 2;
  x = b.add("fc1", linear(16 * side * side, 120), {x});
  x = b.add("relu3", relu(), {x});
  x = b.add("fc2", linear(120, 84), {x});
  x = b.add("relu4", relu(), {x});
  return finish_classifier(b, b.add("fc3", linear(84, shape.classes), {x}), target);
}

}  // namespace pipedream
