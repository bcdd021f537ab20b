#include <algorithm>

#include "pipedream/core/random.hpp"
#include "pipedream/data/image_set.hpp"
#include "pipedream/data/sources.hpp"
#include "pipedream/data/token_set.hpp"

namespace pipedream::sources {
namespace {

// An image is half a pattern of its class (blocks of 4 x 4 pixels) and half noise, so its label can be learned from it.
struct PatternImages {
  std::int64_t channels, size, classes;
  std::uint64_t key;

  [[nodiscard]] std::int64_t label(std::int64_t index) const {
    return static_cast<std::int64_t>(random_bits(combine_keys(key, 1), static_cast<std::uint64_t>(index)) % static_cast<std::uint64_t>(classes));
  }

  void read(std::int64_t index, std::uint8_t* pixels) const {
    const std::uint64_t pattern = combine_keys(combine_keys(key, 2), static_cast<std::uint64_t>(label(index)));
    const std::uint64_t noise = combine_keys(combine_keys(key, 3), static_cast<std::uint64_t>(index));
    const std::int64_t blocks = (size + 3) / 4;
    std::uint64_t bits = 0;
    std::int64_t n = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t y = 0; y < size; ++y)
        for (std::int64_t x = 0; x < size; ++x, ++n) {
          if (n % 8 == 0) bits = random_bits(noise, static_cast<std::uint64_t>(n));
          const auto block = static_cast<std::uint64_t>((c * blocks + y / 4) * blocks + x / 4);
          const std::uint64_t base = random_bits(pattern, block) & 0xff;
          pixels[n] = static_cast<std::uint8_t>((base + (bits & 0xff)) / 2);
          bits >>= 8;
        }
  }
};

class SyntheticImages final : public DataSource {
 public:
  SyntheticImages(PatternImages patterns, std::int64_t samples)
      : patterns_(patterns), samples_(samples), statistics_(pixel_statistics(images(0, 200))) {
    info_ = {"synthetic-images",
             {patterns.channels, patterns.size, patterns.size},
             patterns.classes,
             0,
             samples * patterns.channels * patterns.size * patterns.size};
  }

  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const override {
    const bool train = split == Split::Train;
    return make_image_set(images(train ? 0 : samples_, train ? samples_ : std::max<std::int64_t>(1, samples_ / 8)), statistics_, wanted, info_.name);
  }

 private:
  [[nodiscard]] ByteImages images(std::int64_t first, std::int64_t count) const {
    return {count,
            patterns_.channels,
            patterns_.size,
            patterns_.size,
            [p = patterns_, first](std::int64_t index, std::uint8_t* pixels) { p.read(first + index, pixels); },
            [p = patterns_, first](std::int64_t index) { return p.label(first + index); }};
  }

  PatternImages patterns_;
  std::int64_t samples_;
  PixelStatistics statistics_;
  DataInfo info_;
};

// The next token follows from the last one in seven cases of eight, and is random in the eighth.
class SyntheticTokens final : public DataSource {
 public:
  SyntheticTokens(std::int64_t samples, std::int64_t vocabulary, std::uint64_t key) : samples_(samples), key_(key) {
    info_ = {"synthetic-tokens", {}, 0, vocabulary, 0};
  }

  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const override {
    const bool train = split == Split::Train;
    const std::int64_t first = train ? 0 : samples_, count = train ? samples_ : std::max<std::int64_t>(1, samples_ / 8);
    const auto vocabulary = static_cast<std::uint64_t>(info_.vocabulary);
    const auto read = [first, vocabulary, key = key_](std::int64_t index, std::int64_t length, std::int64_t* tokens) {
      const std::uint64_t sample = combine_keys(combine_keys(key, 5), static_cast<std::uint64_t>(first + index));
      std::uint64_t token = random_bits(sample, 0) % vocabulary;
      for (std::int64_t i = 0; i <= length; ++i) {
        tokens[i] = static_cast<std::int64_t>(token);
        const std::uint64_t bits = random_bits(sample, static_cast<std::uint64_t>(i) + 1);
        token = (bits & 7) == 0 ? (bits >> 8) % vocabulary : random_bits(combine_keys(key, 6), token) % vocabulary;
      }
    };
    return make_token_set({[count](std::int64_t) { return count; }, read}, wanted, info_.name);
  }

 private:
  std::int64_t samples_;
  std::uint64_t key_;
  DataInfo info_;
};

}  // namespace

SourcePointer open_synthetic_images(NamedSpec& spec) {
  const std::int64_t samples = spec.integer("samples", 8192, 1, INT64_MAX / 2);
  const PatternImages patterns{spec.integer("channels", 1, 1, 1024), spec.integer("size", 28, 1, 4096), spec.integer("classes", 10, 2, 1 << 24),
                               mix_bits(static_cast<std::uint64_t>(spec.integer("seed", 0, 0, INT64_MAX)))};
  spec.finish();
  return std::make_shared<SyntheticImages>(patterns, samples);
}

SourcePointer open_synthetic_tokens(NamedSpec& spec) {
  const std::int64_t samples = spec.integer("samples", 8192, 1, INT64_MAX / 2), vocabulary = spec.integer("vocabulary", 64, 2, 1 << 24);
  const auto key = mix_bits(static_cast<std::uint64_t>(spec.integer("seed", 0, 0, INT64_MAX)));
  spec.finish();
  return std::make_shared<SyntheticTokens>(samples, vocabulary, key);
}

}  // namespace pipedream::sources
