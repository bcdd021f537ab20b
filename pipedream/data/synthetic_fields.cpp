#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/data/sources.hpp"

namespace pipedream::sources {
namespace {

/// Random values for whatever fields a model has: normal floats, uniform integers and booleans. Nothing can be learned from them.
class SyntheticFieldSet final : public DataSet {
 public:
  SyntheticFieldSet(std::vector<FieldSpec> fields, std::int64_t size, std::int64_t limit, std::uint64_t key)
      : fields_(std::move(fields)), size_(size), limit_(limit), key_(key) {
    for (const FieldSpec& field : fields_)
      if (field.dtype != at::kFloat && field.dtype != at::kDouble && field.dtype != at::kLong && field.dtype != at::kInt && field.dtype != at::kBool)
        throw UsageError(fmt::format("data set 'synthetic' cannot make '{}' of type {}", field.name, c10::toString(field.dtype)));
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const std::vector<FieldSpec>& fields() const override { return fields_; }

  [[nodiscard]] std::vector<at::Tensor> get(const std::vector<std::int64_t>& indices, const std::vector<bool>& wanted) const override {
    std::vector<at::Tensor> result(fields_.size());
    for (std::size_t f = 0; f < fields_.size(); ++f)
      if (wanted.at(f)) result[f] = make(fields_[f], indices);
    return result;
  }

 private:
  [[nodiscard]] at::Tensor make(const FieldSpec& field, const std::vector<std::int64_t>& indices) const {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(indices.size())};
    shape.insert(shape.end(), field.shape.begin(), field.shape.end());
    const bool is_real = field.dtype == at::kFloat || field.dtype == at::kDouble;
    at::Tensor values = at::empty(shape, at::TensorOptions().dtype(is_real ? at::kFloat : at::kLong));
    const std::int64_t width = indices.empty() ? 0 : values.numel() / shape[0];
    const auto limit = static_cast<std::uint64_t>(field.dtype == at::kBool ? 2 : limit_);
    for (std::size_t row = 0; row < indices.size(); ++row) {
      const std::uint64_t key = combine_keys(combine_keys(key_, key_of(field.name)), static_cast<std::uint64_t>(indices[row]));
      const std::int64_t first = static_cast<std::int64_t>(row) * width;
      for (std::int64_t i = 0; i < width; ++i) {
        const auto n = static_cast<std::uint64_t>(i);
        if (is_real) values.data_ptr<float>()[first + i] = static_cast<float>(random_normal(key, n));
        else values.data_ptr<std::int64_t>()[first + i] = static_cast<std::int64_t>(random_bits(key, n) % limit);
      }
    }
    return values.to(field.dtype);
  }

  std::vector<FieldSpec> fields_;
  std::int64_t size_, limit_;
  std::uint64_t key_;
};

class SyntheticFields final : public DataSource {
 public:
  SyntheticFields(std::int64_t samples, std::int64_t limit, std::uint64_t key) : samples_(samples), limit_(limit), key_(key) {
    info_.name = "synthetic";
  }
  [[nodiscard]] const DataInfo& info() const override { return info_; }
  [[nodiscard]] std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const override {
    const bool train = split == Split::Train;
    return std::make_shared<SyntheticFieldSet>(wanted, train ? samples_ : std::max<std::int64_t>(1, samples_ / 8), limit_,
                                               combine_keys(key_, train ? 0 : 1));
  }

 private:
  std::int64_t samples_, limit_;
  std::uint64_t key_;
  DataInfo info_;
};

}  // namespace

SourcePointer open_synthetic_fields(NamedSpec& spec) {
  const std::int64_t samples = spec.integer("samples", 8192, 1, INT64_MAX / 2), limit = spec.integer("limit", 2, 1, INT64_MAX);
  const auto key = mix_bits(static_cast<std::uint64_t>(spec.integer("seed", 0, 0, INT64_MAX)));
  spec.finish();
  return std::make_shared<SyntheticFields>(samples, limit, key);
}

}  // namespace pipedream::sources
