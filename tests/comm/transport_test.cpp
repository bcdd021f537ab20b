#include "pipedream/comm/transport.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "pipedream/comm/c10d.hpp"
#include "pipedream/core/error.hpp"
#include "ranks.hpp"

namespace pipedream::test {
namespace {

using testing::Each;
using testing::HasSubstr;

class EveryTransport : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, EveryTransport, testing::Values("threads", "gloo", "hybrid"));

/// Tensors of a message, a function of its micro-batch: several types, one without gradient, one empty, one that is not contiguous.
std::vector<at::Tensor> some_tensors(int micro_batch, std::int64_t rows) {
  const auto values = at::arange(rows * 6).to(at::kFloat) + micro_batch;
  std::vector<at::Tensor> tensors{values.view({rows, 6}), values.to(at::kLong).view({rows, 3, 2}), values.view({6, rows}).t(),
                                  at::Tensor(),           at::empty({0, 4}, at::kDouble),          values.to(at::kBool)};
  if (micro_batch % 3 == 1) tensors[0] = at::Tensor();  // a gradient of zero, sometimes
  return tensors;
}

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << i;
    if (!wanted[i].defined()) continue;
    EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << i;
    EXPECT_TRUE(got[i].equal(wanted[i])) << i;
  }
}

TEST_P(EveryTransport, KeepsValuesTypesAndShapesOfManyMessagesPostedAhead) {
  const int count = 150;  // more than the tags that tell micro-batches apart
  // The first message decides what is posted; later ones are smaller and larger.
  const auto rows = [](int i) { return std::int64_t{i == 0 ? 5 : i % 7 == 3 ? 900 : 1 + i % 5}; };
  const auto errors = run_ranks(GetParam(), 2, [&](Transport& transport) {
    for (int pass = 0; pass < 2; ++pass) {
      transport.barrier();
      if (transport.rank() == 0) {
        for (int i = 0; i < count; ++i) transport.send(1, {0, 1, i, false}, some_tensors(i, rows(i)), 0);
        for (int i = 0; i < count; ++i) expect_same(transport.receive(1, {0, 1, i, true}), some_tensors(i, rows(i)));
      } else {
        int posted = 0;
        for (int i = 0; i < count; ++i) {
          for (; posted < std::min(count, i + 9); ++posted) transport.post_receive(0, {0, 1, posted, false});
          auto tensors = transport.receive(0, {0, 1, i, false});
          expect_same(tensors, some_tensors(i, rows(i)));
          transport.send(0, {0, 1, i, true}, std::move(tensors), 0);
        }
      }
      transport.barrier();
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, ANumberOfTensorsThatChangesAndAHeaderThatIsLong) {
  const auto tensors = [](int i) {
    std::vector<at::Tensor> all;
    for (int k = 0; k < (i == 1 ? 100 : 1 + i); ++k) all.push_back(at::full({2, 1, 1, 3}, i * 1000 + k));
    return all;
  };
  const auto errors = run_ranks(GetParam(), 2, [&](Transport& transport) {
    for (int i = 0; i < 6; ++i) {
      if (transport.rank() == 0) transport.send(1, {0, 1, i, false}, tensors(i), 0);
      else expect_same(transport.receive(0, {0, 1, i, false}), tensors(i));
    }
    transport.barrier();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, EdgesAndReplicasDoNotMixUp) {
  // Every rank sends to every rank, itself included, on edges in both directions; received in another order than sent.
  const auto errors = run_ranks(GetParam(), 3, [](Transport& transport) {
    const int own = transport.rank();
    for (int to = 0; to < 3; ++to)
      for (int i = 0; i < 5; ++i)
        for (const bool gradient : {false, true}) transport.send(to, {own, 3 + to, i, gradient}, {at::full({4}, own * 100 + i * 2 + gradient)}, 0);
    for (int i = 4; i >= 0; --i)
      for (int from = 2; from >= 0; --from)
        for (const bool gradient : {true, false}) {
          const auto tensors = transport.receive(from, {from, 3 + own, i, gradient});
          ASSERT_EQ(tensors.size(), 1U);
          EXPECT_EQ(tensors[0][0].item<int>(), from * 100 + i * 2 + gradient);
        }
    transport.barrier();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, BytesSentArePayloadsToOthers) {
  const auto errors = run_ranks(GetParam(), 2, [](Transport& transport) {
    if (transport.rank() == 0) {
      transport.send(0, {0, 0, 0, false}, {at::zeros({100})}, 0);
      transport.send(1, {0, 1, 0, false}, {at::zeros({100}), at::Tensor()}, 0);
      EXPECT_EQ(transport.bytes_sent(), 400);
      (void)transport.receive(0, {0, 0, 0, false});
    } else {
      (void)transport.receive(0, {0, 1, 0, false});
    }
    const auto before = transport.bytes_sent();
    std::vector<at::Tensor> tensors{at::ones({10})};
    transport.all_reduce({0, 1}, tensors);
    EXPECT_EQ(transport.bytes_sent() - before, 40);  // 2 (R - 1) / R of 40
    transport.barrier();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, GathersInTheOrderOfRanks) {
  const auto errors = run_ranks(GetParam(), 3, [](Transport& transport) {
    for (int round = 0; round < 2; ++round) {
      const auto all = transport.gather(transport.rank() == 1 ? "" : std::string(static_cast<std::size_t>(transport.rank() + 1), 'x'));
      if (transport.rank() == 0) EXPECT_THAT(all, testing::ElementsAre("x", "", "xxx"));
      else EXPECT_TRUE(all.empty());
    }
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, ABoundedEdgeHoldsItsSender) {
  const auto errors = run_ranks(
      GetParam(), 2,
      [](Transport& transport) {
        if (transport.rank() == 0) {
          transport.send(1, {0, 1, 0, false}, {at::zeros({4})}, 2);
          transport.send(1, {0, 1, 1, false}, {at::zeros({4})}, 2);
          EXPECT_THROW(transport.send(1, {0, 1, 2, false}, {at::zeros({4})}, 2), RankError);  // nobody takes one
        } else {
          EXPECT_THROW(transport.barrier(), RankError);
        }
      },
      std::chrono::milliseconds(1000));
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, AReplicaDoesNotUseUpTheRoomOfAnother) {
  const auto errors = run_ranks(
      GetParam(), 3,
      [](Transport& transport) {
        // Rank 0 sends micro-batches 0, 2, 4; rank 1, which is late, sends 1, 3, 5 to the same chunk.
        if (transport.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
        for (int i = 0; i < 6; ++i) {
          if (transport.rank() == 2) (void)transport.receive(i % 2, {0, 1, i, false});
          else if (transport.rank() == i % 2) transport.send(2, {0, 1, i, false}, {at::zeros({4})}, 1);
        }
        transport.barrier();
      },
      std::chrono::milliseconds(2000));
  EXPECT_THAT(errors, Each(""));
}

TEST_P(EveryTransport, ADeadlineNamesWhoWaitedForWhat) {
  const auto errors = run_ranks(
      GetParam(), 2,
      [](Transport& transport) {
        if (transport.rank() == 0) (void)transport.receive(1, {2, 3, 7, true});
        else transport.barrier();
      },
      std::chrono::milliseconds(500));
  // Rank 1 waits as long; one of the two is first, and both tell the same.
  EXPECT_EQ(errors[0].substr(0, errors[0].find('\n')), errors[1].substr(0, errors[1].find('\n')));
  EXPECT_THAT(errors[0], testing::AnyOf(HasSubstr("rank 0 waited 500 ms for the gradient of micro-batch 7 from stage 3 (rank 1)"),
                                        HasSubstr("rank 1 waited 500 ms for the other ranks")));
}

TEST_P(EveryTransport, AnAbortWakesEveryWait) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = run_ranks(GetParam(), 3, [](Transport& transport) {
    if (transport.rank() == 0) (void)transport.receive(1, {0, 1, 0, false});
    if (transport.rank() == 1) transport.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    throw RankError("out of luck");
  });
  EXPECT_THAT(errors, Each("out of luck"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));  // the deadline is 20 s
}

TEST(Gloo, ARankThatLeavesIsNamed) {
  const auto errors = run_ranks("gloo", 2, [](Transport& transport) {
    if (transport.rank() == 0) (void)transport.receive(1, {0, 1, 3, false});
  });
  EXPECT_THAT(errors[0], HasSubstr("for the activation of micro-batch 3 from stage 0 (rank 1), and the connection broke"));
  EXPECT_THAT(errors[0], HasSubstr("rank 1: has finished"));
}

TEST(Gloo, AMessageOfAnotherScheduleIsAnError) {
  const auto errors = run_ranks("gloo", 2, [](Transport& transport) {
    if (transport.rank() == 0) transport.send(1, {0, 1, 64, false}, {at::zeros({1})}, 0);
    if (transport.rank() == 1) (void)transport.receive(0, {0, 1, 0, false});  // shares its tag with 64
    transport.barrier();
  });
  EXPECT_THAT(errors[1],
              HasSubstr("rank 1 expected the activation of micro-batch 0 from stage 0 from rank 0 and got the activation of micro-batch 64"));
}

TEST(Gloo, OtherBackendsAreRefused) { EXPECT_THROW((void)make_c10d_transport(nullptr, "mpi"), UsageError); }

}  // namespace
}  // namespace pipedream::test
