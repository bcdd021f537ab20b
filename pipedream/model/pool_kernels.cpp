#include "pipedream/model/pool_kernels.hpp"

#include <cstddef>
#include <vector>

// Compiled with -fno-trapping-math, without which the selections below become branches that are predicted wrong half of the time
// (12 times as slow). What NaNs do is not changed by it.
namespace pipedream {
namespace {

// Whether b takes the place of a: it is greater, or no number. An integer, so that the compiler selects instead of branching.
inline std::int32_t second_wins(float a, float b) { return static_cast<std::int32_t>(b > a) | static_cast<std::int32_t>(b != b); }

void pool_row(const float* __restrict upper, const float* __restrict lower, float* __restrict out, std::int32_t* __restrict winner,
              std::int64_t width) {
  for (std::int64_t x = 0; x < width; ++x) {
    const float a = upper[2 * x], b = upper[2 * x + 1], c = lower[2 * x], d = lower[2 * x + 1];
    const std::int32_t second = second_wins(a, b);
    const float above = second ? b : a;
    const std::int32_t third = second_wins(above, c);
    const float so_far = third ? c : above;
    const std::int32_t fourth = second_wins(so_far, d);
    out[x] = fourth ? d : so_far;
    winner[x] = fourth ? 3 : (third ? 2 : second);
  }
}

}  // namespace

void pool_planes(const float* in, float* out, std::uint8_t* winners, const Planes& planes) {
  const std::int64_t rows = planes.out_height(), columns = planes.out_width();
  std::vector<std::int32_t> winner(static_cast<std::size_t>(columns));
  for (std::int64_t p = 0; p < planes.count; ++p)
    for (std::int64_t y = 0; y < rows; ++y) {
      const float* upper = in + (p * planes.height + 2 * y) * planes.width;
      const std::int64_t at = (p * rows + y) * columns;
      pool_row(upper, upper + planes.width, out + at, winner.data(), columns);
      for (std::int64_t x = 0; x < columns; ++x) winners[at + x] = static_cast<std::uint8_t>(winner[static_cast<std::size_t>(x)]);
    }
}

void spread_planes(const float* gradient, const std::uint8_t* winners, float* in, const Planes& planes) {
  const std::int64_t rows = planes.out_height(), columns = planes.out_width();
  for (std::int64_t p = 0; p < planes.count; ++p)
    for (std::int64_t y = 0; y < rows; ++y) {
      float* upper = in + (p * planes.height + 2 * y) * planes.width;
      float* lower = upper + planes.width;
      const std::int64_t at = (p * rows + y) * columns;
      for (std::int64_t x = 0; x < columns; ++x) {
        const float g = gradient[at + x];
        const std::uint8_t w = winners[at + x];
        upper[2 * x] = w == 0 ? g : 0.0F;
        upper[2 * x + 1] = w == 1 ? g : 0.0F;
        lower[2 * x] = w == 2 ? g : 0.0F;
        lower[2 * x + 1] = w == 3 ? g : 0.0F;
      }
    }
}

}  // namespace pipedream
