#include "pipedream/data/image_set.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/data/fields.hpp"

namespace pipedream {
namespace {

constexpr std::int64_t kLargestBorder = 8;  // pixels in all; beyond it an image is resized instead of padded

// Source positions of the pixels of one axis: out[i] = near[i] * (1 - share[i]) + far[i] * share[i].
struct Axis {
  std::vector<std::int64_t> near, far;
  std::vector<float> share;
};

// Bilinear, with pixel centres at half positions (torch's align_corners=False).
Axis resized_axis(std::int64_t from, std::int64_t to) {
  Axis axis;
  for (std::int64_t i = 0; i < to; ++i) {
    const double at = std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(from) / static_cast<double>(to) - 0.5);
    const auto near = std::min(static_cast<std::int64_t>(at), from - 1);
    axis.near.push_back(near);
    axis.far.push_back(std::min(near + 1, from - 1));
    axis.share.push_back(static_cast<float>(at - static_cast<double>(near)));
  }
  return axis;
}

class ImageSet final : public DataSet {
 public:
  ImageSet(ByteImages images, const PixelStatistics& statistics, std::vector<FieldSpec> fields, const std::string& data_set)
      : images_(std::move(images)), fields_(std::move(fields)) {
    require_fields(fields_, {"image", "target"}, data_set);
    for (const FieldSpec& field : fields_) {
      if (field.name == "target") require_field_form(field, at::kLong, 0, data_set);
      if (field.name != "image") continue;
      require_field_form(field, at::kFloat, 3, data_set);
      channels_ = field.shape[0], height_ = field.shape[1], width_ = field.shape[2];
      if (channels_ != images_.channels && images_.channels != 1 && channels_ != 1)
        throw UsageError(fmt::format("the model wants {} channels, the images of '{}' have {}", channels_, data_set, images_.channels));
    }
    pads_ = height_ >= images_.height && width_ >= images_.width && std::max(height_ - images_.height, width_ - images_.width) <= kLargestBorder;
    if (!pads_) rows_ = resized_axis(images_.height, height_), columns_ = resized_axis(images_.width, width_);
    for (std::int64_t c = 0; c < images_.channels; ++c) {
      auto& table = tables_.emplace_back();
      for (int byte = 0; byte < 256; ++byte)
        table[static_cast<std::size_t>(byte)] =
            (static_cast<float>(byte) / 255.0F - statistics.mean[static_cast<std::size_t>(c)]) / statistics.deviation[static_cast<std::size_t>(c)];
    }
  }

  [[nodiscard]] std::int64_t size() const override { return images_.count; }
  [[nodiscard]] const std::vector<FieldSpec>& fields() const override { return fields_; }

  [[nodiscard]] std::vector<at::Tensor> get(const std::vector<std::int64_t>& indices, const std::vector<bool>& wanted) const override {
    std::vector<at::Tensor> result(fields_.size());
    for (std::size_t i = 0; i < fields_.size(); ++i)
      if (wanted.at(i)) result[i] = fields_[i].name == "image" ? images(indices) : targets(indices);
    return result;
  }

 private:
  [[nodiscard]] at::Tensor targets(const std::vector<std::int64_t>& indices) const {
    at::Tensor result = at::empty({static_cast<std::int64_t>(indices.size())}, at::TensorOptions().dtype(at::kLong));
    std::transform(indices.begin(), indices.end(), result.data_ptr<std::int64_t>(), images_.label);
    return result;
  }

  [[nodiscard]] at::Tensor images(const std::vector<std::int64_t>& indices) const {
    at::Tensor result = at::empty({static_cast<std::int64_t>(indices.size()), channels_, height_, width_}, at::TensorOptions().dtype(at::kFloat));
    const std::int64_t plane = images_.height * images_.width, size = channels_ * height_ * width_;
    std::vector<std::uint8_t> pixels(static_cast<std::size_t>(images_.channels * plane));
    std::vector<float> merged;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      images_.read(indices[i], pixels.data());
      float* out = result.data_ptr<float>() + static_cast<std::int64_t>(i) * size;
      if (channels_ == images_.channels) {
        for (std::int64_t c = 0; c < channels_; ++c)
          place(pixels.data() + c * plane, tables_[static_cast<std::size_t>(c)], out + c * height_ * width_);
      } else if (images_.channels == 1) {
        place(pixels.data(), tables_[0], out);
        for (std::int64_t c = 1; c < channels_; ++c) std::copy_n(out, height_ * width_, out + c * height_ * width_);
      } else {
        average(pixels, merged, out);
      }
    }
    return result;
  }

  // The mean of the normalised channels.
  void average(const std::vector<std::uint8_t>& pixels, std::vector<float>& plane, float* out) const {
    const std::int64_t size = height_ * width_;
    plane.resize(static_cast<std::size_t>(size));
    std::fill_n(out, size, 0.0F);
    for (std::int64_t c = 0; c < images_.channels; ++c) {
      place(pixels.data() + c * images_.height * images_.width, tables_[static_cast<std::size_t>(c)], plane.data());
      for (std::int64_t i = 0; i < size; ++i) out[i] += plane[static_cast<std::size_t>(i)] / static_cast<float>(images_.channels);
    }
  }

  // One channel: padded with black around it, or resized.
  void place(const std::uint8_t* from, const std::array<float, 256>& table, float* to) const {
    if (!pads_) return resize(from, table, to);
    const std::int64_t top = (height_ - images_.height) / 2, left = (width_ - images_.width) / 2;
    if (height_ != images_.height || width_ != images_.width) std::fill_n(to, height_ * width_, table[0]);
    for (std::int64_t y = 0; y < images_.height; ++y)
      for (std::int64_t x = 0; x < images_.width; ++x) to[(top + y) * width_ + left + x] = table[from[y * images_.width + x]];
  }

  void resize(const std::uint8_t* from, const std::array<float, 256>& table, float* to) const {
    for (std::size_t y = 0; y < rows_.near.size(); ++y) {
      const std::uint8_t* upper = from + rows_.near[y] * images_.width;
      const std::uint8_t* lower = from + rows_.far[y] * images_.width;
      for (std::size_t x = 0; x < columns_.near.size(); ++x) {
        const auto along = [&](const std::uint8_t* row) {
          return table[row[columns_.near[x]]] * (1 - columns_.share[x]) + table[row[columns_.far[x]]] * columns_.share[x];
        };
        to[static_cast<std::int64_t>(y) * width_ + static_cast<std::int64_t>(x)] =
            along(upper) * (1 - rows_.share[y]) + along(lower) * rows_.share[y];
      }
    }
  }

  ByteImages images_;
  std::vector<FieldSpec> fields_;
  std::int64_t channels_ = 1, height_ = 1, width_ = 1;
  bool pads_ = true;
  Axis rows_, columns_;
  std::vector<std::array<float, 256>> tables_;  // byte -> normalised value, per channel
};

}  // namespace

PixelStatistics pixel_statistics(const ByteImages& images) {
  const std::int64_t plane = images.height * images.width, count = std::min<std::int64_t>(images.count, 10000);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(images.channels * plane));
  std::vector<double> sum(static_cast<std::size_t>(images.channels)), squares(sum.size());
  for (std::int64_t i = 0; i < count; ++i) {
    images.read(i, pixels.data());
    for (std::size_t p = 0; p < pixels.size(); ++p) {
      const double value = pixels[p] / 255.0;
      sum[p / static_cast<std::size_t>(plane)] += value;
      squares[p / static_cast<std::size_t>(plane)] += value * value;
    }
  }
  PixelStatistics statistics;
  const double total = static_cast<double>(std::max<std::int64_t>(count * plane, 1));
  for (std::size_t c = 0; c < sum.size(); ++c) {
    const double mean = sum[c] / total;
    statistics.mean.push_back(static_cast<float>(mean));
    statistics.deviation.push_back(static_cast<float>(std::max(1e-3, std::sqrt(std::max(0.0, squares[c] / total - mean * mean)))));
  }
  return statistics;
}

std::shared_ptr<const DataSet> make_image_set(ByteImages images, const PixelStatistics& statistics, const std::vector<FieldSpec>& wanted,
                                              const std::string& data_set) {
  return std::make_shared<ImageSet>(std::move(images), statistics, wanted, data_set);
}

}  // namespace pipedream
