#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace pipedream {

/// One micro-batch of data.
struct MicroBatchData {
  std::vector<at::Tensor> inputs;      ///< one per input of the model, targets included; undefined where not asked for
  std::vector<std::uint64_t> samples;  ///< key of each row
};

/// Where a rank gets the data of a pass from. One object a rank. Every rank asks for the rows' keys; only chunks that read inputs of the
/// model ask for tensors, each for itself: neither inputs nor labels travel through the pipeline.
class MicroBatchSource {
 public:
  MicroBatchSource() = default;
  MicroBatchSource(const MicroBatchSource&) = delete;
  MicroBatchSource& operator=(const MicroBatchSource&) = delete;
  virtual ~MicroBatchSource() = default;

  [[nodiscard]] virtual int num_micro_batches() const = 0;
  /// Rows of a micro-batch; only the last one may have fewer than the others.
  [[nodiscard]] virtual std::int64_t rows(int micro_batch) const = 0;
  [[nodiscard]] virtual MicroBatchData get(int micro_batch, bool with_tensors) = 0;
};

/// What a rank wants of the data of one pass.
struct SourceRequest {
  int epoch = 0;             ///< from 0; of test data without meaning
  bool training = true;      ///< false: test data
  std::vector<bool> wanted;  ///< which inputs of the model get() must give; empty: none, only rows are asked for
  int stride = 1;            ///< the rank reads every stride-th micro-batch: its stage has so many replicas
};

/// Gives the data of a pass; nothing where there is no test data. Called on the thread of the rank that reads it.
using SourceFactory = std::function<std::unique_ptr<MicroBatchSource>(const SourceRequest&)>;

}  // namespace pipedream
