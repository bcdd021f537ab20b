#pragma once

#include <cstdint>

namespace pipedream {

/// `count` images of height x width floats, one after another.
struct Planes {
  std::int64_t count, height, width;  ///< of the input
  [[nodiscard]] std::int64_t out_height() const { return height / 2; }
  [[nodiscard]] std::int64_t out_width() const { return width / 2; }
};

/// Maximum of every 2 x 2 pixels, and which of them it is (0 to 3, row by row). The first of equal values wins; a NaN stays one.
void pool_planes(const float* in, float* out, std::uint8_t* winners, const Planes& planes);

/// Writes each gradient to its winner and zero to the other three. An odd last row or column is not touched.
void spread_planes(const float* gradient, const std::uint8_t* winners, float* in, const Planes& planes);

}  // namespace pipedream
