#include "pipedream/core/random.hpp"

#include <cmath>
#include <numbers>

namespace pipedream {

double random_normal(std::uint64_t key, std::uint64_t n) noexcept {
  const double radius = std::sqrt(-2.0 * std::log1p(-random_uniform(key, 2 * n)));
  return radius * std::cos(2.0 * std::numbers::pi * random_uniform(key, 2 * n + 1));
}

}  // namespace pipedream
