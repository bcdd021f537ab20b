#pragma once

#include <cstdint>
#include <string_view>

/// Random numbers as functions of their coordinates. Nothing here has state: initial weights, dropout masks and the order of the data are
/// functions of (seed, layer name, sample), so they do not depend on where or in which order a layer runs.
namespace pipedream {

/// Mixes 64 bits so that every input bit reaches every output bit (finalizer of SplitMix64, Steele et al., OOPSLA 2014).
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// A key from a key and one more coordinate; the order of coordinates matters.
[[nodiscard]] constexpr std::uint64_t combine_keys(std::uint64_t key, std::uint64_t coordinate) noexcept {
  return mix_bits(key ^ mix_bits(coordinate));
}

/// A key from a text (FNV-1a, then mixed): layer and parameter names become coordinates through it.
[[nodiscard]] constexpr std::uint64_t key_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix_bits(hash);
}

/// The n-th 64 random bits of the stream `key`.
[[nodiscard]] constexpr std::uint64_t random_bits(std::uint64_t key, std::uint64_t n) noexcept {
  return mix_bits(key + mix_bits(n) * 0xd1342543de82ef95ULL);
}

/// The n-th number of the stream `key`, uniform in [0, 1), a multiple of 2^-53.
[[nodiscard]] constexpr double random_uniform(std::uint64_t key, std::uint64_t n) noexcept {
  return static_cast<double>(random_bits(key, n) >> 11) * 0x1.0p-53;
}

/// The n-th number of the stream `key`, normal with mean 0 and deviation 1 (Box-Muller on the bits 2n and 2n+1).
[[nodiscard]] double random_normal(std::uint64_t key, std::uint64_t n) noexcept;

}  // namespace pipedream
