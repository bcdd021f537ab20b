#include "pipedream/data/token_set.hpp"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/data/fields.hpp"

namespace pipedream {
namespace {

class TokenSet final : public DataSet {
 public:
  TokenSet(const TokenSequences& sequences, std::vector<FieldSpec> fields, const std::string& data_set)
      : sequences_(sequences), fields_(std::move(fields)) {
    require_fields(fields_, {"tokens", "target"}, data_set);
    for (const FieldSpec& field : fields_) {
      require_field_form(field, at::kLong, 1, data_set);
      if (length_ > 0 && field.shape[0] != length_)
        throw UsageError(fmt::format("the model wants {} tokens and {} targets per sample of '{}'", length_, field.shape[0], data_set));
      length_ = field.shape[0];
    }
    size_ = sequences_.count(length_);
    if (size_ < 1)
      throw InputError(data_set, fmt::format("holds not one sequence of {} tokens", length_ + 1), "use a longer text or a shorter context");
  }

  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const std::vector<FieldSpec>& fields() const override { return fields_; }

  [[nodiscard]] std::vector<at::Tensor> get(const std::vector<std::int64_t>& indices, const std::vector<bool>& wanted) const override {
    std::vector<at::Tensor> result(fields_.size());
    const auto rows = static_cast<std::int64_t>(indices.size());
    for (std::size_t f = 0; f < fields_.size(); ++f)
      if (wanted.at(f)) result[f] = at::empty({rows, length_}, at::TensorOptions().dtype(at::kLong));
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(length_) + 1);
    for (std::int64_t row = 0; row < rows; ++row) {
      sequences_.read(indices[static_cast<std::size_t>(row)], length_, tokens.data());
      for (std::size_t f = 0; f < fields_.size(); ++f)
        if (wanted[f])
          std::copy_n(tokens.data() + (fields_[f].name == "target" ? 1 : 0), length_, result[f].data_ptr<std::int64_t>() + row * length_);
    }
    return result;
  }

 private:
  TokenSequences sequences_;
  std::vector<FieldSpec> fields_;
  std::int64_t length_ = 0, size_ = 0;
};

}  // namespace

std::shared_ptr<const DataSet> make_token_set(const TokenSequences& sequences, const std::vector<FieldSpec>& wanted, const std::string& data_set) {
  return std::make_shared<TokenSet>(sequences, wanted, data_set);
}

}  // namespace pipedream
