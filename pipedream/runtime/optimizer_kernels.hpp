#pragma once

#include <cstdint>

/// One pass of an optimizer over one contiguous float parameter. `source` and `target` may be the same.
namespace pipedream {

struct SgdNumbers {
  float learning_rate, momentum, weight_decay, scale;
  bool nesterov, first;
};
void sgd_pass(const float* source, float* target, const float* gradient, float* momentum, std::int64_t n, const SgdNumbers& numbers);

struct AdamNumbers {
  float step_size, beta1, beta2, epsilon, root_correction, weight_decay, keep, scale;
};
/// step_size = lr / (1 - beta1^t), root_correction = 1 / sqrt(1 - beta2^t), keep = 1 - lr * decoupled weight decay.
void adam_pass(const float* source, float* target, const float* gradient, float* first_moment, float* second_moment, std::int64_t n,
               const AdamNumbers& numbers);

}  // namespace pipedream
