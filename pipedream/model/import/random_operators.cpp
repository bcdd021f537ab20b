#include <ATen/ATen.h>

#include <cmath>
#include <unordered_map>

#include "pipedream/core/random.hpp"
#include "pipedream/model/import/torch_operators.hpp"
#include "pipedream/model/layers.hpp"

/// Operators that draw random numbers, with numbers that are functions of (seed, step, sample): libtorch's generator is global, so its numbers would
/// depend on which rank thread comes first.
namespace pipedream {
namespace {

using Values = std::vector<c10::IValue>;

constexpr double kAlpha = 1.7580993408473766;  // -scale * alpha of SELU: where alpha dropout sends dropped elements

/// Rows of a tensor that belong to samples: which dimension they lie along, and how many samples there are.
struct Rows {
  std::int64_t samples = 1;
  int dimension = -1;  ///< -1: the tensor has no batch; all of it goes by one key
};

Rows rows_of(const BoundStep& step, at::IntArrayRef sizes, const Frame& frame) {
  const int d = step.batch_dimension;
  if (d < 0 || d >= static_cast<int>(sizes.size())) return {};
  const std::int64_t size = sizes[static_cast<std::size_t>(d)];
  const auto* keys = frame.context->samples;
  const std::int64_t samples = keys == nullptr ? size : static_cast<std::int64_t>(keys->size());
  // A dimension of batch * heads: all heads of a sample lie together.
  if (samples <= 0 || size % samples != 0) return {};
  return {samples, d};
}

/// One key for a whole micro-batch, for tensors without a batch dimension.
std::uint64_t joint_key(const Frame& frame) {
  std::uint64_t key = 0;
  if (frame.context->samples != nullptr) {
    for (const std::uint64_t sample : *frame.context->samples) key = combine_keys(key, sample);
  }
  return key;
}

/// A tensor of the given sizes out of `make(shape, context)`, whose shape has the samples first.
template <typename Make>
at::Tensor by_sample(const BoundStep& step, at::IntArrayRef sizes, const Frame& frame, const Make& make) {
  const Rows rows = rows_of(step, sizes, frame);
  std::int64_t elements = 1;
  for (const std::int64_t size : sizes) elements *= size;
  if (elements == 0) return at::zeros(sizes, at::kFloat);
  if (rows.dimension < 0) {
    const std::vector<std::uint64_t> key{joint_key(frame)};
    ForwardContext context = *frame.context;
    context.samples = &key;
    return make(std::vector<std::int64_t>{1, elements}, context).view(sizes);
  }
  std::vector<std::int64_t> shape(sizes.begin(), sizes.end());
  shape.erase(shape.begin() + rows.dimension);
  shape.insert(shape.begin(), sizes[static_cast<std::size_t>(rows.dimension)]);
  return make(std::vector<std::int64_t>{rows.samples, elements / rows.samples}, *frame.context).view(shape).movedim(0, rows.dimension);
}

at::Tensor mask_of(const BoundStep& step, at::IntArrayRef sizes, double probability, std::uint64_t call, const Frame& frame) {
  if (probability >= 1) return at::zeros(sizes, at::kFloat).to(frame.device);
  return by_sample(step, sizes, frame,
                   [&](const std::vector<std::int64_t>& shape, const ForwardContext& context) {
                     return dropout_mask(shape, probability, combine_keys(step.key, call), context);
                   })
      .to(frame.device);
}

at::Tensor numbers_of(const BoundStep& step, at::IntArrayRef sizes, const Frame& frame, double (*draw)(std::uint64_t, std::uint64_t)) {
  return by_sample(step, sizes, frame,
                   [&](const std::vector<std::int64_t>& shape, const ForwardContext& context) {
                     at::Tensor result = at::empty(shape, at::kFloat);
                     auto* values = result.data_ptr<float>();
                     for (std::int64_t row = 0; row < shape[0]; ++row) {
                       const auto sample = context.samples ? (*context.samples)[static_cast<std::size_t>(row)] : static_cast<std::uint64_t>(row);
                       const std::uint64_t key = combine_keys(combine_keys(step.key, context.seed), sample);
                       for (std::int64_t i = 0; i < shape[1]; ++i) *values++ = static_cast<float>(draw(key, static_cast<std::uint64_t>(i)));
                     }
                     return result;
                   })
      .to(frame.device);
}

double uniform_number(std::uint64_t key, std::uint64_t n) { return random_uniform(key, n); }
double normal_number(std::uint64_t key, std::uint64_t n) { return random_normal(key, n); }

Values as_usual(const BoundStep& step, Values arguments) {
  step.handle->callBoxed(&arguments);
  return arguments;
}

/// dropout(input, p, train)
Values dropout_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const double p = a.at(1).toDouble();
  if (!a.at(2).toBool() || p == 0 || x.numel() == 0) return as_usual(step, a);
  return {x * mask_of(step, x.sizes(), p, 0, frame).to(x.scalar_type())};
}

/// Whole channels: one decision per sample and channel of [batch, channels, ...].
std::vector<std::int64_t> channel_sizes(const at::Tensor& x) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(x.dim()), 1);
  for (std::int64_t d = 0; d < std::min<std::int64_t>(2, x.dim()); ++d) sizes[static_cast<std::size_t>(d)] = x.size(d);
  return sizes;
}

Values feature_dropout_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const double p = a.at(1).toDouble();
  if (!a.at(2).toBool() || p == 0 || x.numel() == 0 || x.dim() < 2) return as_usual(step, a);
  return {x * mask_of(step, channel_sizes(x), p, 0, frame).to(x.scalar_type())};
}

/// Keeps mean and variance under SELU (Klambauer et al. 2017); as ATen's Dropout.cpp computes it.
at::Tensor alpha_dropped(const at::Tensor& x, const at::Tensor& mask, double p) {
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p));
  const at::Tensor kept = (mask != 0).to(x.scalar_type());
  return x * (kept * a) + ((kept - 1) * (kAlpha * a) + kAlpha * a * p);
}

Values alpha_dropout_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const double p = a.at(1).toDouble();
  if (!a.at(2).toBool() || p == 0 || p >= 1 || x.numel() == 0) return as_usual(step, a);
  const bool whole_channels = step.name.starts_with("feature") && x.dim() >= 2;
  return {alpha_dropped(x, mask_of(step, whole_channels ? channel_sizes(x) : x.sizes().vec(), p, 0, frame), p)};
}

/// native_dropout(input, p, train?) -> (output, mask)
Values native_dropout_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const double p = a.at(1).toDouble();
  if ((!a.at(2).isNone() && !a.at(2).toBool()) || p == 0 || x.numel() == 0) return {x, at::ones_like(x, at::kBool)};
  const at::Tensor mask = mask_of(step, x.sizes(), p, 0, frame);
  return {x * mask.to(x.scalar_type()), mask != 0};
}

/// bernoulli(self), bernoulli.p(self, p): ones with probability self or p. In evaluation its expectation, so that stochastic depth, which
/// divides by p, becomes the identity.
Values bernoulli_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const bool has_probability = a.size() > 1 && a[1].isDouble();
  const at::Tensor probability = has_probability ? at::full_like(x, a[1].toDouble()) : x.detach();
  if (!frame.context->training) return {probability};
  return {(numbers_of(step, x.sizes(), frame, uniform_number) < probability).to(x.scalar_type())};
}

/// rand(size, ...), rand_like(self, ...) and the normal forms: the operator itself gives shape and type.
template <double (*draw)(std::uint64_t, std::uint64_t)>
Values fill_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor shape = as_usual(step, a).at(0).toTensor();
  return {numbers_of(step, shape.sizes(), frame, draw).to(shape.scalar_type())};
}

/// uniform(self, from, to) and normal_functional(self, mean, std), the twins of uniform_ and normal_.
Values uniform_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  const double from = a.at(1).toDouble(), to = a.at(2).toDouble();
  return {(numbers_of(step, x.sizes(), frame, uniform_number) * (to - from) + from).to(x.scalar_type())};
}
Values normal_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const at::Tensor x = a.at(0).toTensor();
  return {(numbers_of(step, x.sizes(), frame, normal_number) * a.at(2).toDouble() + a.at(1).toDouble()).to(x.scalar_type())};
}

/// scaled_dot_product_attention(query, key, value, mask?, dropout_p, is_causal, scale?, enable_gqa)
Values attention_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const double p = a.at(4).toDouble();
  if (p == 0) return as_usual(step, a);
  const at::Tensor q = a.at(0).toTensor();
  at::Tensor k = a.at(1).toTensor(), v = a.at(2).toTensor();
  if (a.size() > 7 && a[7].toBool()) {
    k = k.repeat_interleave(q.size(-3) / k.size(-3), -3);
    v = v.repeat_interleave(q.size(-3) / v.size(-3), -3);
  }
  const double scale = a.size() > 6 && !a[6].isNone() ? a[6].toDouble() : 1 / std::sqrt(static_cast<double>(q.size(-1)));
  at::Tensor scores = at::matmul(q * scale, k.transpose(-2, -1));
  constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
  if (a.at(5).toBool())
    scores = scores.masked_fill(at::ones({scores.size(-2), scores.size(-1)}, scores.options().dtype(at::kBool)).tril().logical_not(), kMinusInfinity);
  if (!a.at(3).isNone()) {
    const at::Tensor mask = a[3].toTensor();
    scores = mask.scalar_type() == at::kBool ? scores.masked_fill(mask.logical_not(), kMinusInfinity) : scores + mask;
  }
  const at::Tensor weights = at::softmax(scores, -1);
  return {at::matmul(weights * mask_of(step, weights.sizes(), p, 0, frame).to(weights.scalar_type()), v)};
}

/// Recurrent layers with dropout between them: one call per layer. Arguments: (input, state, weights, has_biases, layers, dropout, train,
/// bidirectional, batch_first); the state of an LSTM is a list of two.
Values recurrent_step(const BoundStep& step, const Values& a, const Frame& frame) {
  const std::int64_t layers = a.at(4).toInt();
  const double p = a.at(5).toDouble();
  if (!a.at(6).toBool() || p == 0 || layers < 2) return as_usual(step, a);
  const std::int64_t directions = a.at(7).toBool() ? 2 : 1;
  const std::vector<at::Tensor> weights = a.at(2).toTensorVector();
  const std::int64_t per_layer = static_cast<std::int64_t>(weights.size()) / layers;
  const bool is_lstm = a.at(1).isTensorList();
  const std::vector<at::Tensor> states = is_lstm ? a[1].toTensorVector() : std::vector<at::Tensor>{a[1].toTensor()};
  std::vector<std::vector<at::Tensor>> last(states.size());
  at::Tensor x = a.at(0).toTensor();
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    Values call = a;
    call[0] = x;
    std::vector<at::Tensor> own_states;
    for (const at::Tensor& state : states) own_states.push_back(state.narrow(0, layer * directions, directions));
    if (is_lstm) call[1] = own_states;
    else call[1] = own_states.front();
    call[2] = std::vector<at::Tensor>(weights.begin() + layer * per_layer, weights.begin() + (layer + 1) * per_layer);
    call[4] = std::int64_t{1};
    call[5] = 0.0;
    const Values result = as_usual(step, call);
    x = result.at(0).toTensor();
    for (std::size_t i = 0; i < states.size(); ++i) last[i].push_back(result.at(i + 1).toTensor());
    if (layer + 1 < layers) x = x * mask_of(step, x.sizes(), p, static_cast<std::uint64_t>(layer), frame).to(x.scalar_type());
  }
  Values results{x};
  for (const auto& state : last) results.emplace_back(at::cat(state, 0));
  return results;
}

}  // namespace

OwnOperator random_operator(const std::string& name) {
  static const std::unordered_map<std::string, OwnOperator> operators{
      {"dropout", dropout_step},
      {"feature_dropout", feature_dropout_step},
      {"alpha_dropout", alpha_dropout_step},
      {"feature_alpha_dropout", alpha_dropout_step},
      {"native_dropout", native_dropout_step},
      {"bernoulli", bernoulli_step},
      {"rand", fill_step<uniform_number>},
      {"rand_like", fill_step<uniform_number>},
      {"randn", fill_step<normal_number>},
      {"randn_like", fill_step<normal_number>},
      {"uniform", uniform_step},
      {"normal_functional", normal_step},
      {"scaled_dot_product_attention", attention_step},
      {"lstm", recurrent_step},
      {"gru", recurrent_step},
      {"rnn_tanh", recurrent_step},
      {"rnn_relu", recurrent_step},
  };
  const auto at = operators.find(name);
  return at == operators.end() ? nullptr : at->second;
}

}  // namespace pipedream
