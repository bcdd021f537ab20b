#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "pipedream/data/data_set.hpp"

namespace pipedream {

/// Order of the samples in an epoch: a permutation of 0 .. size - 1 that is a function of (seed, epoch) only.
[[nodiscard]] std::vector<std::int64_t> epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch);

struct LoaderOptions {
  std::int64_t micro_batch = 1;  ///< rows
  std::uint64_t seed = 0;
  bool shuffle = true;       ///< false: samples in their order, as in evaluation
  std::vector<bool> wanted;  ///< which fields are read; empty: all
  std::int64_t stride = 1;   ///< prefetch expects micro-batch i + stride after i: the number of replicas that take turns
  int prefetch = 2;          ///< micro-batches made ahead by a thread of the loader's own; 0: none, no thread
};

struct MicroBatch {
  std::vector<at::Tensor> tensors;     ///< per field; undefined where it was not wanted
  std::vector<std::uint64_t> samples;  ///< one key per row, a function of (epoch, index in the data set): ForwardContext::samples
  [[nodiscard]] std::int64_t rows() const { return static_cast<std::int64_t>(samples.size()); }
};

/// Micro-batches of epochs by number. Every stage that reads inputs or targets has a loader of its own; all give the same rows for the same
/// number. The last micro-batch of an epoch may be smaller; none is dropped. Any thread may call get; it is random access, but in
/// steps of `stride` (from one epoch into the next) it is prefetched.
class Loader {
 public:
  /// @throws UsageError for a micro-batch of no rows
  Loader(std::shared_ptr<const DataSet> data, LoaderOptions options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  /// Micro-batches in an epoch, at least 1.
  [[nodiscard]] std::int64_t micro_batches() const { return micro_batches_; }
  /// Rows of micro-batch `index` of any epoch.
  [[nodiscard]] std::int64_t rows(std::int64_t index) const;

  /// Micro-batch `index` (0 .. micro_batches() - 1) of `epoch`. Rethrows what the data set threw.
  [[nodiscard]] MicroBatch get(std::int64_t epoch, std::int64_t index);

 private:
  using Number = std::int64_t;  // epoch * micro_batches + index
  struct Result {
    MicroBatch micro_batch;
    std::exception_ptr error;
  };
  using Order = std::shared_ptr<const std::vector<std::int64_t>>;

  [[nodiscard]] Order order_of(std::int64_t epoch);
  [[nodiscard]] MicroBatch make(Number number);
  void request_after(Number number);
  void prefetch(const std::stop_token& stop);

  std::shared_ptr<const DataSet> data_;
  LoaderOptions options_;
  std::int64_t micro_batches_ = 0;

  std::mutex orders_mutex_;  // guards orders_; never held together with mutex_
  std::map<std::int64_t, Order> orders_;

  std::mutex mutex_;  // guards all below
  std::condition_variable_any changed_;
  std::deque<Number> requested_;
  Number making_ = -1;  // by the prefetching thread
  std::map<Number, Result> ready_;
  std::jthread thread_;  // last: it uses everything above
};

}  // namespace pipedream
