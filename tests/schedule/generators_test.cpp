#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/csv.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/validate.hpp"
#include "tests/schedule/requests.hpp"

namespace pipedream {
namespace {

class EveryGenerator : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryGenerator, IsValidUnderAllBufferAssumptions) {
  EXPECT_TRUE(rc::check([&] {
    const ScheduleRequest request = any_request(GetParam());
    const Schedule schedule = make_schedule(request);  // validates, with unlimited, configured and no buffers
    RC_ASSERT(schedule.micro_batches == request.micro_batches);
    // What was folded is what the passes make of the whole list, and as valid as its window.
    RC_ASSERT(action_lists(schedule) == action_lists(lower(unrolled(generate(request)))));
    ValidationOptions options;
    options.require_transfers = options.require_versions = true;
    options.buffers = 1;
    validate(unrolled(schedule), options);
  }));
}

TEST_P(EveryGenerator, StaysValidWithOptionalPasses) {
  EXPECT_TRUE(rc::check([&] {
    ScheduleRequest request = any_request(GetParam());
    request.group_transfers = *rc::gen::inRange(0, 2) == 1;
    request.overlap_reductions = *rc::gen::inRange(0, 2) == 1;
    request.receive_buffers = *rc::gen::inRange(0, 4);
    for (std::size_t chunk = 0; chunk < request.chunk_ranks.size(); ++chunk) request.recompute.push_back(*rc::gen::inRange(0, 2) == 1);
    const Schedule schedule = make_schedule(request);
    RC_ASSERT(schedule_from_csv(schedule_to_csv(schedule), "s.csv") == schedule);
  }));
}

INSTANTIATE_TEST_SUITE_P(All, EveryGenerator, ::testing::ValuesIn(schedule_names()), [](const auto& parameter) {
  std::string name = parameter.param;
  name.erase(std::remove(name.begin(), name.end(), '-'), name.end());
  return name;
});

}  // namespace
}  // namespace pipedream
