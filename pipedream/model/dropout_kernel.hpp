#pragma once

#include <cstdint>

namespace pipedream {

/// Fills a row of a dropout mask: 0 where 16 random bits are below `threshold`, else `scale`. The bits are the SplitMix64 sequence that starts
/// at `key` (its finalizer on an arithmetic progression), so element i depends on (key, i) only.
void fill_mask_row(float* row, std::int64_t count, std::uint64_t key, std::uint16_t threshold, float scale);

}  // namespace pipedream
