#include "pipedream/runtime/optimizer_kernels.hpp"

#include <cmath>

// Memory traffic decides here, so one loop does everything; the compiler makes a version for processors with AVX2. Source and target are
// either the same or apart, so no iteration depends on another (ivdep).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PD_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define PD_VECTOR_CLONES
#endif

namespace pipedream {

PD_VECTOR_CLONES
void sgd_pass(const float* source, float* target, const float* gradient, float* momentum, std::int64_t n, const SgdNumbers& numbers) {
  const float lr = numbers.learning_rate, mu = numbers.momentum, decay = numbers.weight_decay, scale = numbers.scale;
  if (momentum == nullptr) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) target[i] = source[i] - lr * (scale * gradient[i] + decay * source[i]);
    return;
  }
  // The first step sets the momentum to the gradient; multiplying by 0 does it, the buffer being zero-filled.
  const float old = numbers.first ? 0.0F : mu;
  const float look_ahead = numbers.nesterov ? mu : 1.0F, direct = numbers.nesterov ? 1.0F : 0.0F;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = scale * gradient[i] + decay * source[i];
    const float m = old * momentum[i] + g;
    momentum[i] = m;
    target[i] = source[i] - lr * (direct * g + look_ahead * m);
  }
}

PD_VECTOR_CLONES
void adam_pass(const float* source, float* target, const float* gradient, float* first_moment, float* second_moment, std::int64_t n,
               const AdamNumbers& numbers) {
  const AdamNumbers c = numbers;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = c.scale * gradient[i] + c.weight_decay * source[i];
    const float m = c.beta1 * first_moment[i] + (1 - c.beta1) * g;
    const float v = c.beta2 * second_moment[i] + (1 - c.beta2) * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    target[i] = c.keep * source[i] - c.step_size * m / (std::sqrt(v) * c.root_correction + c.epsilon);
  }
}

}  // namespace pipedream
