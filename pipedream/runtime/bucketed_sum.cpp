#include "pipedream/runtime/bucketed_sum.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace pipedream {
namespace {

constexpr std::int64_t kBucketBytes = std::int64_t{4} << 20;

}  // namespace

void fill_undefined(Tensors& gradients, const std::vector<at::Tensor>& parameters) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(parameters[i].detach(), at::MemoryFormat::Contiguous);
    else gradients[i] = gradients[i].contiguous();
  }
}

BucketedSum::BucketedSum(Transport& transport, std::vector<int> group, const std::vector<at::Tensor>& parameters)
    : transport_(transport), group_(std::move(group)), parameters_(parameters), gradients_(parameters.size()) {
  std::int64_t bytes = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    if (bytes == 0) buckets_.emplace_back();
    buckets_.back().push_back(i);
    bytes += static_cast<std::int64_t>(parameters[i].nbytes());
    if (bytes >= kBucketBytes) bytes = 0;
  }
}

void BucketedSum::complete(std::size_t parameter, at::Tensor gradient) {
  gradients_[parameter] = std::move(gradient);
  while (next_ < buckets_.size() &&
         std::all_of(buckets_[next_].begin(), buckets_[next_].end(), [&](std::size_t i) { return gradients_[i].defined(); }))
    start_next();
}

Tensors BucketedSum::rest() {
  fill_undefined(gradients_, parameters_);
  while (next_ < buckets_.size()) start_next();
  return gradients_;
}

void BucketedSum::start_next() {
  Tensors tensors;
  for (const std::size_t i : buckets_[next_]) tensors.push_back(gradients_[i]);
  transport_.start_all_reduce(group_, tensors);
  ++next_;
}

}  // namespace pipedream
