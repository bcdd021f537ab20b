#include "pipedream/model/dropout_kernel.hpp"

#include <algorithm>
#include <cstring>

#include "pipedream/core/random.hpp"

namespace pipedream {

constexpr std::int64_t kMaskBlock = 1024;

// Two plain loops over a block, so that the second is vectorized.
void fill_mask_row(float* row, std::int64_t count, std::uint64_t key, std::uint16_t threshold, float scale) {
  std::uint64_t words[kMaskBlock / 4];
  std::uint16_t draws[kMaskBlock];
  for (std::int64_t begin = 0; begin < count; begin += kMaskBlock) {
    const std::int64_t size = std::min(kMaskBlock, count - begin);
    for (std::int64_t w = 0; w < (size + 3) / 4; ++w) words[w] = mix_bits(key + static_cast<std::uint64_t>(begin / 4 + w) * 0x9e3779b97f4a7c15ULL);
    std::memcpy(draws, words, sizeof(draws));
    for (std::int64_t i = 0; i < size; ++i) row[begin + i] = draws[i] >= threshold ? scale : 0.0F;
  }
}

}  // namespace pipedream
