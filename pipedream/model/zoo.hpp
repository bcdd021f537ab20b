#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipedream/core/named_spec.hpp"
#include "pipedream/model/layers.hpp"
#include "pipedream/model/model.hpp"

namespace pipedream {

/// What a model must fit: taken from the data set. Zero or empty where nothing is known; the model then uses what its paper used.
struct ModelContext {
  std::vector<std::int64_t> sample_shape;  ///< of an image: [channels, height, width]
  std::int64_t classes = 0;
  std::int64_t vocabulary = 0;  ///< of tokens; > 0 exactly for language data
};

/// Makes a model of the zoo. `spec` is "name" or "name:key=value,..." ("gpt:blocks=6,width=256").
///
/// Image models have the inputs "image" [channels, size, size] (float) and "target" [] (integer). Where a network cannot work at the size
/// of the images, its input is larger and the data set pads to it (vgg11 wants 32 where Fashion-MNIST has 28). Language models have
/// "tokens" [context] and "target" [context], both integer.
/// @throws UsageError for an unknown name or option, with the known ones
[[nodiscard]] Model make_model(const std::string& spec, const ModelContext& context);

struct ModelInfo {
  std::string name;
  std::string description;  ///< one line
  std::string options;      ///< "layers=8 width=1024": names and defaults
};
[[nodiscard]] std::vector<ModelInfo> list_models();

/// One function per family; they read their options from the spec. Used through make_model.
namespace zoo {

/// Options every image model has: `classes`, `channels`, `size`.
struct ImageShape {
  std::int64_t channels = 3, size = 224, classes = 1000;
};
/// @param natural_size the size without data; @param minimum_size smaller images are padded to it
[[nodiscard]] ImageShape image_shape(NamedSpec& spec, const ModelContext& context, std::int64_t natural_size, std::int64_t minimum_size);

/// Adds the loss over `logits` and finishes.
[[nodiscard]] Model finish_classifier(ModelBuilder& builder, InputRef logits, InputRef target);

[[nodiscard]] Model make_mlp(NamedSpec& spec, const ModelContext& context);
[[nodiscard]] Model make_lenet(NamedSpec& spec, const ModelContext& context);
[[nodiscard]] Model make_alexnet(NamedSpec& spec, const ModelContext& context);
[[nodiscard]] Model make_vgg(NamedSpec& spec, const ModelContext& context);
[[nodiscard]] Model make_resnet(NamedSpec& spec, const ModelContext& context);
[[nodiscard]] Model make_gpt(NamedSpec& spec, const ModelContext& context);

}  // namespace zoo
}  // namespace pipedream
