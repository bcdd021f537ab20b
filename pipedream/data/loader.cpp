#include "pipedream/data/loader.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

constexpr std::uint64_t kOrderDomain = 0x6f72646572ULL;  // keeps the order apart from other streams of the same seed

// A number in [0, limit): the upper half of a product of 128 bits, so that no division is needed (Lemire 2019, without the rejection).
std::uint64_t random_below(std::uint64_t bits, std::uint64_t limit) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(bits) * limit) >> 64);
}

}  // namespace

std::vector<std::int64_t> epoch_order(std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  const std::uint64_t key = combine_keys(combine_keys(kOrderDomain, seed), static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_below(random_bits(key, i), i)]);
  return order;
}

Loader::Loader(std::shared_ptr<const DataSet> data, LoaderOptions options) : data_(std::move(data)), options_(std::move(options)) {
  if (options_.micro_batch < 1) throw UsageError(fmt::format("a micro-batch of {} rows", options_.micro_batch), "use at least 1");
  PD_CHECK(data_->size() >= 1 && options_.stride >= 1, "{} samples, stride {}", data_->size(), options_.stride);
  if (options_.wanted.empty()) options_.wanted.assign(data_->fields().size(), true);
  PD_CHECK(options_.wanted.size() == data_->fields().size(), "{} of {} fields", options_.wanted.size(), data_->fields().size());
  micro_batches_ = (data_->size() + options_.micro_batch - 1) / options_.micro_batch;
  if (options_.prefetch > 0) thread_ = std::jthread([this](const std::stop_token& stop) { prefetch(stop); });
}

Loader::~Loader() = default;  // the thread is told to stop and joined before the rest goes

std::int64_t Loader::rows(std::int64_t index) const {
  PD_CHECK(index >= 0 && index < micro_batches_, "micro-batch {} of {}", index, micro_batches_);
  return std::min(options_.micro_batch, data_->size() - index * options_.micro_batch);
}

MicroBatch Loader::get(std::int64_t epoch, std::int64_t index) {
  PD_CHECK(epoch >= 0 && index >= 0 && index < micro_batches_, "micro-batch {} of {} in epoch {}", index, micro_batches_, epoch);
  const Number number = epoch * micro_batches_ + index;
  if (options_.prefetch == 0) return make(number);
  std::unique_lock lock(mutex_);
  std::erase(requested_, number);  // not begun yet: made here and now
  changed_.wait(lock, [&] { return making_ != number; });
  std::optional<Result> found;
  if (auto node = ready_.extract(number)) found = std::move(node.mapped());
  request_after(number);
  lock.unlock();
  if (!found) return make(number);
  if (found->error) std::rethrow_exception(found->error);
  return std::move(found->micro_batch);
}

// Called with mutex_ held. What is ready or requested but no longer ahead is let go.
void Loader::request_after(Number number) {
  std::vector<Number> ahead;
  for (int i = 1; i <= options_.prefetch; ++i) ahead.push_back(number + i * options_.stride);
  const auto is_ahead = [&](Number n) { return std::find(ahead.begin(), ahead.end(), n) != ahead.end(); };
  std::erase_if(ready_, [&](const auto& item) { return !is_ahead(item.first); });
  requested_.clear();
  for (const Number n : ahead)
    if (n != making_ && !ready_.contains(n)) requested_.push_back(n);
  changed_.notify_all();
}

void Loader::prefetch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !requested_.empty(); }) && !stop.stop_requested()) {
    const Number number = making_ = requested_.front();
    requested_.pop_front();
    lock.unlock();
    Result result;
    try {
      result.micro_batch = make(number);
    } catch (...) {
      result.error = std::current_exception();
    }
    lock.lock();
    ready_[number] = std::move(result);
    making_ = -1;
    changed_.notify_all();
  }
}

MicroBatch Loader::make(Number number) {
  const std::int64_t epoch = number / micro_batches_, index = number % micro_batches_;
  const std::int64_t begin = index * options_.micro_batch;
  std::vector<std::int64_t> indices(static_cast<std::size_t>(rows(index)));
  if (options_.shuffle) {
    const Order order = order_of(epoch);
    std::copy_n(order->begin() + begin, indices.size(), indices.begin());
  } else {
    std::iota(indices.begin(), indices.end(), begin);
  }
  MicroBatch micro_batch{data_->get(indices, options_.wanted), {}};
  for (const std::int64_t i : indices) micro_batch.samples.push_back(combine_keys(static_cast<std::uint64_t>(epoch), static_cast<std::uint64_t>(i)));
  return micro_batch;
}

Loader::Order Loader::order_of(std::int64_t epoch) {
  const std::lock_guard guard(orders_mutex_);
  Order& order = orders_[epoch];
  if (!order) order = std::make_shared<const std::vector<std::int64_t>>(epoch_order(data_->size(), options_.seed, epoch));
  const Order result = order;
  while (orders_.size() > 2) orders_.erase(orders_.begin()->first == epoch ? std::prev(orders_.end()) : orders_.begin());
  return result;
}

}  // namespace pipedream
