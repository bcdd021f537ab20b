#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "pipedream/comm/transport.hpp"
#include "pipedream/model/layer.hpp"

namespace pipedream {

/// An all-reduce needs the same tensors everywhere: what has no gradient here contributes zeros.
void fill_undefined(Tensors& gradients, const std::vector<at::Tensor>& parameters);

/// Sums gradients over replicas in buckets of a few MB, from the last parameter to the first, each as soon as it is complete. Which
/// parameters share a bucket and the order of buckets are the same on all replicas.
class BucketedSum {
 public:
  BucketedSum(Transport& transport, std::vector<int> group, const std::vector<at::Tensor>& parameters);

  void complete(std::size_t parameter, at::Tensor gradient);
  /// Starts what is left, with zeros where no gradient came. All gradients; they are sums once the transport has finished.
  [[nodiscard]] Tensors rest();

 private:
  void start_next();

  Transport& transport_;
  std::vector<int> group_;
  const std::vector<at::Tensor>& parameters_;
  std::vector<std::vector<std::size_t>> buckets_;
  std::size_t next_ = 0;
  Tensors gradients_;
};

}  // namespace pipedream
