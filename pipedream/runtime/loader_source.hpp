#pragma once

#include <cstdint>
#include <memory>

#include "pipedream/data/data_set.hpp"
#include "pipedream/model/model.hpp"
#include "pipedream/runtime/micro_batches.hpp"

namespace pipedream {

/// The fields of a data set that a model reads: its inputs.
[[nodiscard]] std::vector<FieldSpec> fields_of(const Model& model);

/// Micro-batches of `micro_batch` rows out of data sets (with fields_of(model)): training data shuffled by (seed, epoch), test data in its
/// order. `test` may be null. Each source has a loader of its own, which prefetches.
[[nodiscard]] SourceFactory loader_sources(std::shared_ptr<const DataSet> train, std::shared_ptr<const DataSet> test, std::int64_t micro_batch,
                                           std::uint64_t seed);

}  // namespace pipedream
