#include <gtest/gtest.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/schedule/validate.hpp"
#include "tests/schedule/slow_executor.hpp"

namespace pipedream {
namespace {

constexpr std::size_t kUnlimited = 1'000'000, kConfigured = 2;

Schedule small_schedule(const std::string& name, std::uint64_t key) {
  const ScheduleInfo info = find_schedule(name);
  ScheduleRequest request;
  request.name = name;
  const auto draw = [&](std::uint64_t n, int least, int most) {
    return least + static_cast<int>(random_bits(key, n) % static_cast<std::uint64_t>(most - least + 1));
  };
  const int positions = info.placement == Placement::Mirror ? 2 : draw(1, 2, 3);
  const bool replicated = name != "wpipe" && draw(2, 0, 2) == 0;
  request.chunk_ranks = place_chunks(info.placement, info.chunks_per_rank, std::vector<int>(static_cast<std::size_t>(positions), replicated ? 2 : 1));
  request.step_micro_batches = name == "dualpipe" || name == "dualpipe-v" ? 4 * positions : draw(3, 3, 5);
  request.micro_batches = 2 * request.step_micro_batches;
  if (name == "1f1b-async" && draw(4, 0, 1) == 0) request.step_micro_batches = 1;
  if (name == "asp") request.step_micro_batches = 1;
  if (name == "1f1b-async") request.policy = std::vector<std::string>{"stash", "vertical-sync", "predict"}[static_cast<std::size_t>(draw(5, 0, 2))];
  if (name == "seq1f1b") request.slices = 2;
  request.search_effort = 1e4;
  return unrolled(make_schedule(request));
}

/// One small change to a rank's list: what a wrong generator, pass or edited file would do.
Schedule mutated(Schedule schedule, std::uint64_t key) {
  std::vector<std::vector<Action>*> lists;
  for (RankProgram& program : schedule.ranks)
    if (program.prologue.size() > 3) lists.push_back(&program.prologue);
  auto& list = *lists[random_bits(key, 0) % lists.size()];
  const auto at = [&](std::uint64_t n) { return static_cast<std::size_t>(random_bits(key, n) % list.size()); };
  const std::size_t first = at(1), second = at(2);
  switch (random_bits(key, 3) % 6) {
    case 0:
      std::swap(list[first], list[std::min(first + 1, list.size() - 1)]);
      break;
    case 1:
      std::swap(list[first], list[second]);
      break;
    case 2:
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(first));
      break;
    case 3:
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(second), list[first]);
      break;
    case 4:
      for (std::size_t i = first; i < list.size(); ++i)
        if (list[i].version != Action::kNone) {
          list[i].version += random_bits(key, 4) % 2 == 0 ? 1 : -1;
          break;
        }
      break;
    default:
      for (std::size_t i = first; i < list.size(); ++i)
        if (is_receive(list[i].kind)) {
          const Action receive = list[i];
          list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
          list.insert(list.begin() + static_cast<std::ptrdiff_t>(std::min(second, list.size())), receive);
          break;
        }
  }
  return schedule;
}

/// Why a mutant misbehaves, judged by running it: it stops, computes something else, or holds more than the original.
std::string judge(const Schedule& mutant, const Schedule& original) {
  for (const std::size_t capacity : {kUnlimited, kConfigured, std::size_t{0}}) {
    SlowExecutor reference(original, kUnlimited), executor(mutant, capacity);
    EXPECT_EQ(reference.run(), "");
    if (const std::string wrong = executor.run(); !wrong.empty()) return wrong;
    if (executor.result() != reference.result()) return "computes something else";
    for (const auto& [chunk, versions] : executor.most_versions())
      if (versions > reference.most_versions().at(chunk)) return "holds more versions";
    for (const auto& [rank, live] : executor.most_live())
      if (live > reference.most_live().at(rank)) return "holds more activations";
  }
  return {};
}

ValidationOptions strict_options(const Schedule& original) {
  ValidationOptions options;
  options.require_transfers = options.require_versions = true;
  const Occupancy peaks = occupancy(original);
  options.max_versions = peaks.versions;
  MemoryModel memory;
  memory.activation.assign(static_cast<std::size_t>(original.num_chunks()), 1);
  memory.limit.assign(peaks.in_flight.begin(), peaks.in_flight.end());
  options.memory = memory;
  return options;
}

class Mutations : public ::testing::TestWithParam<std::string> {};

TEST_P(Mutations, WhatMisbehavesIsRefused) {
  constexpr int kSchedules = 4, kMutants = 60;
  int misbehaving = 0, accepted = 0;
  for (int n = 0; n < kSchedules; ++n) {
    const std::uint64_t key = combine_keys(key_of(GetParam()), static_cast<std::uint64_t>(n));
    const Schedule original = small_schedule(GetParam(), key);
    const ValidationOptions options = strict_options(original);
    ASSERT_FALSE(find_violation(original, options).has_value()) << find_violation(original, options)->what;
    for (int m = 0; m < kMutants; ++m) {
      const Schedule mutant = mutated(original, combine_keys(key, 1000 + static_cast<std::uint64_t>(m)));
      const auto violation = find_violation(mutant, options);
      accepted += violation ? 0 : 1;
      const std::string wrong = judge(mutant, original);
      misbehaving += wrong.empty() ? 0 : 1;
      EXPECT_TRUE(violation || wrong.empty()) << "accepted, but " << wrong << "\n" << original << mutant;
    }
  }
  EXPECT_GT(misbehaving, kSchedules * kMutants / 4);  // the executor can see
  RecordProperty("misbehaving", misbehaving);
  RecordProperty("accepted", accepted);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const ScheduleInfo& info : list_schedules()) names.push_back(info.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, Mutations, ::testing::ValuesIn(all_names()), [](const auto& parameter) {
  std::string name = parameter.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

}  // namespace
}  // namespace pipedream
