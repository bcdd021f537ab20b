#include <fmt/format.h>

#include "pipedream/core/error.hpp"
#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

// Channels in units of the first block's; 0 is a pooling. Configurations A and D of the paper.
const std::vector<int>& vgg_configuration(const std::string& name) {
  static const std::vector<int> vgg11 = {1, 0, 2, 0, 4, 4, 0, 8, 8, 0, 8, 8, 0};
  static const std::vector<int> vgg16 = {1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0};
  return name == "vgg11" ? vgg11 : vgg16;
}

InputRef vgg_features(ModelBuilder& b, InputRef x, const std::vector<int>& configuration, std::int64_t in, std::int64_t width, bool norm) {
  int next = 0;
  const auto add = [&](LayerRecipe recipe) { x = b.add(fmt::format("features.{}", next++), std::move(recipe), {x}); };
  for (const int multiple : configuration) {
    if (multiple == 0) {
      add(max_pool2d(2, 2));
      continue;
    }
    const std::int64_t out = multiple * width;
    ConvOptions options;
    options.padding = 1;
    options.weight_initial = Initial::kaiming_normal(out * 9);  // torchvision's; without it eleven layers do not start to learn
    options.bias_initial = Initial::constant(0);
    add(conv2d(in, out, 3, options));
    if (norm) add(batch_norm2d(out));
    add(relu());
    in = out;
  }
  return x;
}

LayerRecipe vgg_linear(std::int64_t in, std::int64_t out) {
  LinearOptions options;
  options.weight_initial = Initial::normal(0.01);
  options.bias_initial = Initial::constant(0);
  return linear(in, out, options);
}

}  // namespace

Model zoo::make_vgg(NamedSpec& spec, const ModelContext& context) {
  const ImageShape shape = image_shape(spec, context, 224, 32);
  const std::int64_t width = spec.integer("width", 64, 1, 4096);
  const bool norm = spec.flag("batch_norm", false);
  const double probability = spec.number("dropout", 0.5, 0, 0.99);
  const std::string classifier = spec.text("classifier", shape.size < 64 ? "small" : "full");
  if (classifier != "full" && classifier != "small")
    throw UsageError(fmt::format("classifier={} of model '{}'", classifier, spec.name()), "use full or small");
  ModelBuilder b(spec.name());
  const InputRef image = b.input("image", {shape.channels, shape.size, shape.size});
  const InputRef target = b.input("target", {}, at::kLong);
  InputRef x = vgg_features(b, image, vgg_configuration(spec.name()), shape.channels, width, norm);
  const bool small = classifier == "small";  // the usual form for 32 pixels: one linear layer
  x = b.add("avgpool", adaptive_avg_pool2d(small ? 1 : 7), {x});
  x = b.add("flatten", flatten(), {x});
  if (small) return finish_classifier(b, b.add("classifier", linear(8 * width, shape.classes), {x}), target);
  x = b.add("classifier.0", vgg_linear(8 * width * 49, 4096), {x});
  x = b.add("classifier.1", relu(), {x});
  x = b.add("classifier.2", dropout(probability), {x});
  x = b.add("classifier.3", vgg_linear(4096, 4096), {x});
  x = b.add("classifier.4", relu(), {x});
  x = b.add("classifier.5", dropout(probability), {x});
  return finish_classifier(b, b.add("classifier.6", vgg_linear(4096, shape.classes), {x}), target);
}

}  // namespace pipedream
