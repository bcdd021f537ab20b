#pragma once

#include <array>
#include <functional>

#include "pipedream/data/data_set.hpp"

namespace pipedream {

/// Images as bytes, channel by channel, and their labels: stored, or made on request. Both functions may be called by several threads.
struct ByteImages {
  std::int64_t count = 0;
  std::int64_t channels = 0, height = 0, width = 0;
  std::function<void(std::int64_t index, std::uint8_t* pixels)> read;
  std::function<std::int64_t(std::int64_t index)> label;
};

/// Mean and deviation of the pixels / 255, per channel.
struct PixelStatistics {
  std::vector<float> mean, deviation;
};

/// Of (at most) the first 10,000 images.
[[nodiscard]] PixelStatistics pixel_statistics(const ByteImages& images);

/// Normalised images (mean 0, deviation 1 per channel) in the wanted fields "image" and "target"; see DataSource::split for what is adapted.
[[nodiscard]] std::shared_ptr<const DataSet> make_image_set(ByteImages images, const PixelStatistics& statistics,
                                                            const std::vector<FieldSpec>& wanted, const std::string& data_set);

}  // namespace pipedream
