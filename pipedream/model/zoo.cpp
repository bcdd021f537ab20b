#include "pipedream/model/zoo.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

struct ZooEntry {
  ModelInfo info;
  Model (*make)(NamedSpec&, const ModelContext&);
};

const std::vector<ZooEntry>& zoo_entries() {
  static const std::vector<ZooEntry> entries = {
      {{"mlp", "multi-layer perceptron on flattened images", "layers=8 width=1024 dropout=0"}, zoo::make_mlp},
      {{"lenet", "LeNet-5 with ReLU and max pooling (LeCun et al. 1998)", "size=28"}, zoo::make_lenet},
      {{"alexnet", "AlexNet as in torchvision (Krizhevsky 2014); a small form under 64 pixels", "size=224 dropout=0.5"}, zoo::make_alexnet},
      {{"vgg11", "VGG-11 (Simonyan, Zisserman 2015)", "size=224 width=64 batch_norm=0 classifier=full|small dropout=0.5"}, zoo::make_vgg},
      {{"vgg16", "VGG-16 (Simonyan, Zisserman 2015)", "size=224 width=64 batch_norm=0 classifier=full|small dropout=0.5"}, zoo::make_vgg},
      {{"resnet18", "ResNet-18 (He et al. 2016)", "size=224 width=64"}, zoo::make_resnet},
      {{"resnet50", "ResNet-50 as in torchvision (stride in the 3x3 convolution)", "size=224 width=64"}, zoo::make_resnet},
      {{"gpt", "decoder-only transformer with the layout of GPT-2", "blocks=6 width=256 heads=8 context=64 vocabulary=256 dropout=0 tied=0"},
       zoo::make_gpt},
  };
  return entries;
}

}  // namespace

zoo::ImageShape zoo::image_shape(NamedSpec& spec, const ModelContext& context, std::int64_t natural_size, std::int64_t minimum_size) {
  if (context.vocabulary > 0)
    throw UsageError(fmt::format("model '{}' reads images, the data set holds tokens", spec.name()), "use --model gpt, or another data set");
  ImageShape shape{3, natural_size, context.classes > 0 ? context.classes : 1000};
  if (context.sample_shape.size() == 3) {
    shape.channels = context.sample_shape[0];
    shape.size = std::max({minimum_size, context.sample_shape[1], context.sample_shape[2]});
  }
  shape.channels = spec.integer("channels", shape.channels, 1, 1024);
  shape.size = spec.integer("size", shape.size, minimum_size, 4096);
  shape.classes = spec.integer("classes", shape.classes, 2, 1 << 24);
  if (shape.classes < context.classes)
    throw UsageError(fmt::format("classes={} of model '{}' is less than the {} of the data", shape.classes, spec.name(), context.classes));
  return shape;
}

Model zoo::finish_classifier(ModelBuilder& builder, InputRef logits, InputRef target) {
  return builder.finish(builder.add("loss", cross_entropy(), {logits, target}), logits, target);
}

Model make_model(const std::string& spec, const ModelContext& context) {
  NamedSpec named(spec, "model");
  std::vector<std::string> names;
  for (const ZooEntry& entry : zoo_entries()) {
    names.push_back(entry.info.name);
    if (entry.info.name != named.name()) continue;
    Model model = entry.make(named, context);
    named.finish();
    return model;
  }
  throw UsageError(fmt::format("unknown model '{}'", named.name()), fmt::format("known models: {}", fmt::join(names, ", ")));
}

std::vector<ModelInfo> list_models() {
  std::vector<ModelInfo> models;
  for (const ZooEntry& entry : zoo_entries()) models.push_back(entry.info);
  return models;
}

}  // namespace pipedream
