#include "pipedream/data/loader.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <future>
#include <numeric>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

// Sample i is the number i; an optional number at which it throws.
class Numbers final : public DataSet {
 public:
  explicit Numbers(std::int64_t size, std::int64_t broken = -1) : size_(size), broken_(broken) {}
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] const std::vector<FieldSpec>& fields() const override { return fields_; }
  [[nodiscard]] std::vector<at::Tensor> get(const std::vector<std::int64_t>& indices, const std::vector<bool>& wanted) const override {
    if (std::find(indices.begin(), indices.end(), broken_) != indices.end()) throw InputError("numbers", "sample is broken");
    std::vector<at::Tensor> result(1);
    if (wanted.at(0)) result[0] = at::tensor(indices, at::TensorOptions().dtype(at::kLong));
    return result;
  }

 private:
  std::int64_t size_, broken_;
  std::vector<FieldSpec> fields_ = {{"target", {}, at::kLong}};
};

LoaderOptions rows_of(std::int64_t micro_batch, int prefetch = 2) {
  LoaderOptions options;
  options.micro_batch = micro_batch;
  options.seed = 5;
  options.prefetch = prefetch;
  return options;
}

std::vector<std::int64_t> numbers_in(const MicroBatch& micro_batch) {
  const at::Tensor tensor = micro_batch.tensors.at(0);
  return {tensor.data_ptr<std::int64_t>(), tensor.data_ptr<std::int64_t>() + tensor.numel()};
}

TEST(EpochOrder, IsAPermutationThatDependsOnSeedAndEpoch) {
  ASSERT_TRUE(rc::check([] {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 300);
    const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1000);
    const auto order = epoch_order(size, 5, epoch);
    auto sorted = order;
    std::sort(sorted.begin(), sorted.end());
    std::vector<std::int64_t> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    RC_ASSERT(sorted == all);
    RC_ASSERT(order == epoch_order(size, 5, epoch));
    if (size > 20) RC_ASSERT(order != epoch_order(size, 5, epoch + 1) && order != epoch_order(size, 6, epoch));
  }));
}

// Every sample is equally likely at the first place: 4000 draws over 8 samples, 500 expected each, deviation sqrt(4000/8*7/8) = 21.
TEST(EpochOrder, HasNoFavourites) {
  std::vector<int> first(8);
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) ++first[static_cast<std::size_t>(epoch_order(8, 1, epoch)[0])];
  for (const int count : first) EXPECT_NEAR(count, 500, 5 * 21);
}

TEST(LoaderTest, AnEpochHoldsEverySampleOnceWhateverTheMicroBatch) {
  ASSERT_TRUE(rc::check([] {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 60);
    const auto micro_batch = *rc::gen::inRange<std::int64_t>(1, 70);
    const auto prefetch = *rc::gen::inRange(0, 3);
    Loader loader(std::make_shared<Numbers>(size), rows_of(micro_batch, prefetch));
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::int64_t> seen;
      for (std::int64_t i = 0; i < loader.micro_batches(); ++i) {
        const auto numbers = numbers_in(loader.get(epoch, i));
        RC_ASSERT(static_cast<std::int64_t>(numbers.size()) == loader.rows(i));
        RC_ASSERT(loader.rows(i) == micro_batch || i + 1 == loader.micro_batches());
        seen.insert(seen.end(), numbers.begin(), numbers.end());
      }
      RC_ASSERT(seen == epoch_order(size, 5, epoch));
    }
  }));
}

TEST(LoaderTest, RandomAccessEqualsTheSequence) {
  ASSERT_TRUE(rc::check([] {
    Loader sequential(std::make_shared<Numbers>(23), rows_of(4, 0));
    auto options = rows_of(4);
    options.stride = *rc::gen::inRange(1, 4);
    Loader loader(std::make_shared<Numbers>(23), options);
    for (const auto& [epoch, index] :
         *rc::gen::container<std::vector<std::pair<int, int>>>(rc::gen::pair(rc::gen::inRange(0, 3), rc::gen::inRange(0, 6)))) {
      const MicroBatch a = loader.get(epoch, index), b = sequential.get(epoch, index);
      RC_ASSERT(numbers_in(a) == numbers_in(b));
      RC_ASSERT(a.samples == b.samples);
    }
  }));
}

TEST(LoaderTest, SampleKeysAreFunctionsOfEpochAndIndex) {
  Loader loader(std::make_shared<Numbers>(10), rows_of(3));
  const MicroBatch micro_batch = loader.get(7, 1);
  const auto numbers = numbers_in(micro_batch);
  for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(micro_batch.samples[i], combine_keys(7, static_cast<std::uint64_t>(numbers[i])));
}

TEST(LoaderTest, EvaluationKeepsTheOrderAndUnwantedFieldsStayUndefined) {
  auto options = rows_of(3);
  options.shuffle = false;
  Loader loader(std::make_shared<Numbers>(7), options);
  EXPECT_EQ(numbers_in(loader.get(0, 2)), std::vector<std::int64_t>{6});
  options.wanted = {false};
  Loader keys_only(std::make_shared<Numbers>(7), options);
  EXPECT_FALSE(keys_only.get(0, 0).tensors[0].defined());
  EXPECT_EQ(keys_only.get(0, 0).rows(), 3);
}

TEST(LoaderTest, ManyThreadsGetTheSame) {
  Loader loader(std::make_shared<Numbers>(101), rows_of(4));
  std::vector<std::future<bool>> threads;
  for (int t = 0; t < 4; ++t)
    threads.push_back(std::async(std::launch::async, [&loader, t] {
      for (std::int64_t n = 0; n < 60; ++n) {
        const std::int64_t epoch = n / 26, index = (n * (t + 1)) % 26;
        const auto order = epoch_order(101, 5, epoch);
        const auto numbers = numbers_in(loader.get(epoch, index));
        if (!std::equal(numbers.begin(), numbers.end(), order.begin() + index * 4)) return false;
      }
      return true;
    }));
  for (auto& thread : threads) EXPECT_TRUE(thread.get());
}

TEST(LoaderTest, ErrorsOfTheDataReachTheOneWhoAsked) {
  auto options = rows_of(1);
  options.shuffle = false;
  Loader loader(std::make_shared<Numbers>(6, 3), options);
  for (std::int64_t i = 0; i < 3; ++i) EXPECT_NO_THROW((void)loader.get(0, i));
  EXPECT_THROW((void)loader.get(0, 3), InputError);
  EXPECT_NO_THROW((void)loader.get(0, 4));
  EXPECT_THROW(Loader(std::make_shared<Numbers>(3), rows_of(0)), UsageError);
}

}  // namespace
}  // namespace pipedream
