#include "pipedream/sim/trace.hpp"

#include <gtest/gtest.h>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/generate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

Trace some_trace() {
  ScheduleRequest request;
  request.name = "1f1b-async";
  request.chunk_ranks = {{0, 1}, {2}};
  request.micro_batches = 9;
  SimulationOptions options;
  options.chunks = {ChunkCosts{0.1, 0.7, 1.0 / 3}};
  options.links.latency_ms = 0.01;
  options.jitter = 0.2;
  return simulate(make_schedule(request), options).trace;
}

TEST(Trace, ReadsWhatItWrites) {
  Trace trace = some_trace();
  trace.title = "a \"title\" with <signs>";
  EXPECT_EQ(trace_from_chrome_json(trace_to_chrome_json(trace), "trace.json"), trace);
}

TEST(Trace, RefusesOtherFilesAndBrokenOnes) {
  const std::string text = trace_to_chrome_json(some_trace());
  EXPECT_THROW(static_cast<void>(trace_from_chrome_json("{}", "t.json")), InputError);
  EXPECT_THROW(static_cast<void>(trace_from_chrome_json(text.substr(0, text.size() / 2), "t.json")), InputError);
  std::string wrong_rank = text;
  wrong_rank.replace(wrong_rank.find("\"num_ranks\":3"), 13, "\"num_ranks\":1");
  EXPECT_THROW(static_cast<void>(trace_from_chrome_json(wrong_rank, "t.json")), InputError);
}

}  // namespace
}  // namespace pipedream
