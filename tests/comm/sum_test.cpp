#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipedream/core/random.hpp"
#include "ranks.hpp"

namespace pipedream::test {
namespace {

struct SumCase {
  std::string transport;
  int ranks;
};
void PrintTo(const SumCase& c, std::ostream* out) { *out << c.transport << "_" << c.ranks; }

class SumOverGroup : public testing::TestWithParam<SumCase> {};

/// Small and large ones, of two types, one with fewer elements than ranks; values that make the order of additions visible.
std::vector<at::Tensor> gradients_of(int rank) {
  std::vector<at::Tensor> tensors{at::empty({3}),       at::empty({40, 50}),         at::empty({1}),
                                  at::empty({1300000}), at::empty({7}, at::kDouble), at::empty({0})};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t key = combine_keys(static_cast<std::uint64_t>(rank), i);
    at::Tensor flat = tensors[i].view({-1});
    if (flat.numel() > 100000) {  // drawing millions one by one takes seconds
      flat.copy_(at::sin(at::arange(flat.numel()) * (0.001 * (rank + 1)) + rank));
      continue;
    }
    for (std::int64_t n = 0; n < flat.numel(); ++n) flat[n] = random_normal(key, static_cast<std::uint64_t>(n)) * (n % 3 == 0 ? 1e6 : 1);
  }
  return tensors;
}

TEST_P(SumOverGroup, HasTheBitsOfASumInTheOrderOfRanks) {
  const auto& [transport_name, ranks] = GetParam();
  // A group that is not everybody: rank 1 is left out where there are more than two.
  std::vector<int> group;
  for (int rank = 0; rank < ranks; ++rank)
    if (rank != 1 || ranks == 2) group.push_back(rank);
  auto wanted = gradients_of(group[0]);
  for (std::size_t m = 1; m < group.size(); ++m)
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].add_(gradients_of(group[m])[i]);
  const auto errors = run_ranks(transport_name, ranks, [&, n = ranks](Transport& transport) {
    for (int round = 0; round < 2; ++round) {
      auto tensors = gradients_of(transport.rank());
      if (std::count(group.begin(), group.end(), transport.rank()) > 0) {
        transport.all_reduce(group, tensors);
        for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(tensors[i].equal(wanted[i])) << i << " of " << n;
      }
      transport.barrier();
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

INSTANTIATE_TEST_SUITE_P(Groups, SumOverGroup,
                         testing::Values(SumCase{"threads", 2}, SumCase{"threads", 4}, SumCase{"gloo", 2}, SumCase{"gloo", 3}, SumCase{"gloo", 5}));

}  // namespace
}  // namespace pipedream::test
