#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace pipedream {

/// One tensor of a sample: shape without the batch dimension, and type.
struct FieldSpec {
  std::string name;  ///< "image", "tokens", "target"
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
};

/// Samples by number. Implementations are immutable, so every stage and the loader's thread may read one at once.
class DataSet {
 public:
  DataSet() = default;
  DataSet(const DataSet&) = delete;
  DataSet& operator=(const DataSet&) = delete;
  virtual ~DataSet() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  [[nodiscard]] virtual const std::vector<FieldSpec>& fields() const = 0;

  /// The given samples, one tensor [indices.size(), ...] per field in the order of fields(). Fields that are not wanted stay undefined: a
  /// stage in the middle of a pipeline reads neither inputs nor targets. @param wanted one entry per field
  [[nodiscard]] virtual std::vector<at::Tensor> get(const std::vector<std::int64_t>& indices, const std::vector<bool>& wanted) const = 0;
};

enum class Split { Train, Test };

/// What is known of a data set before a model is chosen; models adapt to it.
struct DataInfo {
  std::string name;
  std::vector<std::int64_t> sample_shape;  ///< images: [channels, height, width]; tokens: empty
  std::int64_t classes = 0;                ///< images
  std::int64_t vocabulary = 0;             ///< tokens
  std::int64_t train_bytes = 0;            ///< of the raw data
};

/// A data set with its splits, in the form that a model wants.
class DataSource {
 public:
  DataSource() = default;
  DataSource(const DataSource&) = delete;
  DataSource& operator=(const DataSource&) = delete;
  virtual ~DataSource() = default;

  [[nodiscard]] virtual const DataInfo& info() const = 0;

  /// A split with the given fields (the inputs of the model), in their order. Images of another size are padded with black (up to 8 pixels)
  /// or resized (bilinear), one channel is repeated where three are wanted, three are averaged where one is. Token sequences get the wanted length.
  /// @throws UsageError for a field that the data cannot give, InputError for data that is not usable
  [[nodiscard]] virtual std::shared_ptr<const DataSet> split(Split split, const std::vector<FieldSpec>& wanted) const = 0;
};

/// Opens a data set by its spec: "fashion-mnist", "idx:FOLDER", "synthetic-images:size=32,classes=10", "synthetic-tokens", "text:FILE".
/// @throws UsageError for an unknown name or option; InputError where files are missing or malformed
[[nodiscard]] std::shared_ptr<const DataSource> open_data(const std::string& spec);

struct DataListing {
  std::string name;
  std::string description;  ///< one line
  std::string options;      ///< "samples=4096 size=28": names and defaults
  bool found = true;        ///< its files are there (or it needs none)
  std::string where;        ///< the folder; where it was not found, how to get it
};
[[nodiscard]] std::vector<DataListing> list_data();

}  // namespace pipedream
