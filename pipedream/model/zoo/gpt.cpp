#include <fmt/format.h>

#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/model/zoo.hpp"

namespace pipedream {
namespace {

struct GptShape {
  std::int64_t blocks, width, heads;
  double dropout;
};

// Initial weights of GPT-2 (Radford et al. 2019): normal 0.02; 0.02 / sqrt(2 * blocks) where a residual is added.
LayerRecipe gpt_linear(std::int64_t in, std::int64_t out, double deviation) {
  LinearOptions options;
  options.weight_initial = Initial::normal(deviation);
  options.bias_initial = Initial::constant(0);
  return linear(in, out, options);
}

InputRef gpt_residual(ModelBuilder& b, const std::string& name, InputRef x, InputRef y, double probability) {
  if (probability > 0) y = b.add(name + "dropout", dropout(probability), {y});
  return b.add(name + "add", add(), {x, y});
}

InputRef gpt_block(ModelBuilder& b, const std::string& block, InputRef x, const GptShape& shape) {
  const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(shape.blocks));
  InputRef y = b.add(block + "ln_1", layer_norm(shape.width), {x});
  y = b.add(block + "attn.c_attn", gpt_linear(shape.width, 3 * shape.width, 0.02), {y});
  y = b.add(block + "attn", causal_attention(shape.width, shape.heads, shape.dropout), {y});
  y = b.add(block + "attn.c_proj", gpt_linear(shape.width, shape.width, residual), {y});
  x = gpt_residual(b, block + "attn.", x, y, shape.dropout);
  y = b.add(block + "ln_2", layer_norm(shape.width), {x});
  y = b.add(block + "mlp.c_fc", gpt_linear(shape.width, 4 * shape.width, 0.02), {y});
  y = b.add(block + "mlp.gelu", gelu(), {y});
  y = b.add(block + "mlp.c_proj", gpt_linear(4 * shape.width, shape.width, residual), {y});
  return gpt_residual(b, block + "mlp.", x, y, shape.dropout);
}

}  // namespace

Model zoo::make_gpt(NamedSpec& spec, const ModelContext& context) {
  if (!context.sample_shape.empty() && context.vocabulary == 0)
    throw UsageError("model 'gpt' reads tokens, the data set holds images", "use --data text:FILE or synthetic-tokens, or another model");
  const std::int64_t vocabulary = spec.integer("vocabulary", context.vocabulary > 0 ? context.vocabulary : 256, 2, 1 << 24);
  if (vocabulary < context.vocabulary)
    throw UsageError(fmt::format("vocabulary={} is smaller than that of the data, {}", vocabulary, context.vocabulary));
  const std::int64_t length = spec.integer("context", 64, 1, 1 << 20);
  const GptShape shape{spec.integer("blocks", 6, 1, 10000), spec.integer("width", 256, 1, 1 << 20), spec.integer("heads", 8, 1, 4096),
                       spec.number("dropout", 0, 0, 0.99)};
  const bool tied = spec.flag("tied", false);
  ModelBuilder b("gpt");
  const InputRef tokens = b.input("tokens", {length}, at::kLong);
  const InputRef target = b.input("target", {length}, at::kLong);
  const InputRef embedded = b.add("wte", embedding(vocabulary, shape.width, Initial::normal(0.02)), {tokens});
  InputRef x = b.add("wpe", add_positions(length, shape.width), {embedded});
  if (shape.dropout > 0) x = b.add("drop", dropout(shape.dropout), {x});
  for (std::int64_t i = 0; i < shape.blocks; ++i) x = gpt_block(b, fmt::format("h.{}.", i), x, shape);
  x = b.add("ln_f", layer_norm(shape.width), {x});
  LinearOptions head;
  head.bias = false;
  head.weight_initial = Initial::normal(0.02);
  const InputRef logits = b.add("lm_head", linear(shape.width, vocabulary, head), {x});
  if (tied) b.tie(embedded, "weight", logits, "weight");
  return finish_classifier(b, logits, target);
}

}  // namespace pipedream
