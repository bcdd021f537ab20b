#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdlib>

#include "pipedream/schedule/generate.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/validate.hpp"
#include "pipedream/sim/simulate.hpp"

namespace pipedream {
namespace {

ScheduleRequest request(const std::string& name, int ranks, int micro_batches) {
  const ScheduleInfo info = find_schedule(name);
  ScheduleRequest result;
  result.name = name;
  result.chunk_ranks = place_chunks(info.placement, info.chunks_per_rank, std::vector<int>(static_cast<std::size_t>(ranks), 1));
  result.micro_batches = result.step_micro_batches = micro_batches;
  return result;
}

double resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

// One mini-batch, so nothing is folded: every action is generated, lowered and looked at.
void BM_GenerateLowerValidate(benchmark::State& state) {
  const ScheduleRequest wanted = request("1f1b", static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  const double before = resident_bytes();
  std::int64_t actions = 0;
  for (auto _ : state) {
    const Schedule schedule = make_schedule(wanted);
    actions = num_actions(schedule);
    benchmark::DoNotOptimize(actions);
  }
  if (actions <= 0) std::abort();
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["actions/s"] = benchmark::Counter(static_cast<double>(actions), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["peak bytes/action"] = (resident_bytes() - before) / static_cast<double>(actions);
}
BENCHMARK(BM_GenerateLowerValidate)->Args({4, 1000})->Args({16, 1000})->Args({16, 8000})->Args({64, 2300})->Unit(benchmark::kMillisecond);

void BM_Simulate(benchmark::State& state) {
  const Schedule schedule = make_schedule(request("1f1b", static_cast<int>(state.range(0)), static_cast<int>(state.range(1))));
  SimulationOptions options;
  options.links.latency_ms = 0.1;
  options.keep_trace = state.range(2) != 0;
  const int p = static_cast<int>(state.range(0)), m = static_cast<int>(state.range(1));
  {  // checked once: with free links it is the closed formula
    SimulationOptions free = options;
    free.links.latency_ms = 0;
    if (std::abs(simulate(schedule, free).makespan_ms - (m + p - 1) * 3.0) > 1e-6) std::abort();
  }
  for (auto _ : state) benchmark::DoNotOptimize(simulate(schedule, options).makespan_ms);
  state.counters["actions"] = static_cast<double>(num_actions(schedule));
  state.counters["actions/s"] = benchmark::Counter(static_cast<double>(num_actions(schedule)), benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_Simulate)
    ->Args({4, 1000, 0})
    ->Args({16, 1000, 0})
    ->Args({16, 8000, 0})
    ->Args({64, 2300, 0})
    ->Args({16, 8000, 1})
    ->Unit(benchmark::kMillisecond);

void BM_SearchZeroBubble(benchmark::State& state) {
  ScheduleRequest wanted = request("zb-auto", static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  wanted.costs = {10, 14, 6, 1};
  wanted.memory_limit = 1.5 * static_cast<double>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(generate(wanted));
}
BENCHMARK(BM_SearchZeroBubble)->Args({4, 32})->Args({16, 128})->Unit(benchmark::kMillisecond)->Iterations(1);

// An endless schedule stays small: a pass of a million micro-batches is a few thousand actions.
void BM_EndlessMillion(benchmark::State& state) {
  ScheduleRequest wanted = request("1f1b-async", 8, 1'000'000);
  wanted.step_micro_batches = 1;
  std::int64_t held = 0;
  for (auto _ : state) {
    const Schedule schedule = make_schedule(wanted);
    held = 0;
    for (const RankProgram& program : schedule.ranks)
      held += static_cast<std::int64_t>(program.prologue.size() + program.body.size() + program.epilogue.size());
    if (num_actions(schedule) < 8'000'000) std::abort();
  }
  state.counters["actions held"] = static_cast<double>(held);
}
BENCHMARK(BM_EndlessMillion)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pipedream

BENCHMARK_MAIN();
