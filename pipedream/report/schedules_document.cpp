#include "pipedream/report/schedules_document.hpp"

#include <fmt/format.h>

#include <array>

#include "pipedream/report/compare_schedules.hpp"
#include "pipedream/report/schedule_grid.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

constexpr int kRanks = 4, kMicroBatches = 8;

struct Formula {
  const char *name, *bubble, *memory, *source;
};

// p ranks, m micro-batches per step, v chunks per rank, k slices, r rank from 0; F, I, W times of a rank's whole share of the model, B = I + W.
constexpr std::array kFormulas{
    Formula{"1f1b-async", "none in steady state; (p-1)(F+B) once a pass",
            "p-r activations and versions; with replicas ceil(ranks from the stage on / its replicas)", "PipeDream, SOSP'19"},
    Formula{"gpipe", "(p-1)(F+B)", "m activations; with k slices the bubble is (p-1)(F+B)/k (TeraPipe, 2102.07988)", "GPipe, 1811.06965"},
    Formula{"1f1b", "(p-1)(F+B); on a graph of chunks (depth-1)(F+B)", "min(m, p-r) activations",
            "PipeDream-Flush, 2006.09503; graphs: GraphPipe, 2406.17145"},
    Formula{"interleaved", "(p-1)(F+B)/v", "2(p-r-1)+(v-1)p+1 of v", "Megatron-LM, 2104.04473"},
    Formula{"looped-bfs", "(p-1)(F+B)/v", "up to m activations", "Breadth-first pipeline parallelism, 2211.05953"},
    Formula{"zb-h1", "(p-1)(F+I-W)", "p activations on every rank, counted until W", "Zero Bubble, 2401.10241"},
    Formula{"zb-h2", "(p-1)(F+I-2W) within a rank", "2p-1 activations on every rank", "Zero Bubble, 2401.10241"},
    Formula{"zb-auto", "searched for", "--memory-limit", "Zero Bubble, 2401.10241, section 3; orders by deadlines and local search are ours"},
    Formula{"zb-v", "none where F = I = W and transfers are free", "2p chunk activations, which is 1F1B's memory", "2405.15362"},
    Formula{"v-half", "about half of 1F1B's", "about p/2 activations and a constant", "2405.15362"},
    Formula{"v-min", "about two thirds of 1F1B's", "about p/3 activations and a constant", "2405.15362"},
    Formula{"dualpipe", "(p/2-1)(F&B + B - 3W)", "p+1 stage activations; two copies of the model", "DeepSeek-V3, 2412.19437"},
    Formula{"dualpipe-v", "(p-1)(F&B + B - 3W) of chunks", "2p+1 chunk activations", "DualPipe's README"},
    Formula{"chimera", "p-2 slots where F = B", "p/2+1 to p stage activations; two copies of the model", "Chimera, 2107.06925"},
    Formula{"seq1f1b", "(p-1)(F+B)/k", "p-r-1+k slices", "Seq1F1B, 2406.03488"},
    Formula{"wpipe", "none in steady state", "2p-r chunk activations; two versions of half of the model", "WPipe, ICLR'22"},
    Formula{"model-parallel", "m(p-1)(F+B)", "1 activation", "-"},
    Formula{"data-parallel", "none", "1 activation of the whole model", "-"},
    Formula{"asp", "none", "1 activation of the whole model; which weights a step brings, the run decides (docs/processes.md)",
            "what PipeDream, SOSP'19, compares with"},
};

ScheduleRequest example_of(const ScheduleInfo& info) {
  ScheduleRequest request;
  request.name = info.name;
  request.chunk_ranks = place_chunks(info.placement, info.chunks_per_rank, std::vector<int>(kRanks, 1));
  request.micro_batches = kMicroBatches;
  request.step_micro_batches = info.name == "1f1b-async" || info.name == "asp" ? 1 : info.name == "wpipe" ? kRanks : kMicroBatches;
  if (info.name == "seq1f1b") request.slices = 2;
  request.search_effort = 2e5;  // enough at this size
  return request;
}

std::string section_of(const ScheduleInfo& info) {
  const Schedule schedule = make_schedule(example_of(info));
  SimulationOptions options;
  ChunkCosts costs;
  const double share = info.placement == Placement::Loop || info.placement == Placement::Vee ? 0.5 : 1;
  costs.forward_ms = costs.backward_input_ms = costs.backward_weight_ms = share;
  options.chunks = {costs};
  const SimulationResult result = simulate(schedule, options);
  std::string text = fmt::format("### {}\n\n{}. Versions: `{}`; gradients: {}.\n\n```\n{}```\n\n", info.name, info.summary, schedule.policy,
                                 semantics_of(schedule), schedule_grid(result.trace));
  for (const Formula& formula : kFormulas)
    if (info.name == formula.name) text += fmt::format("Bubble: {}. Memory: {}. Source: {}.\n\n", formula.bubble, formula.memory, formula.source);
  double idle = 0;
  int peak = 0;
  for (const RankFigures& rank : result.ranks) {
    idle = std::max(idle, rank.makespan_idle_ms);
    peak = std::max(peak, rank.peak_activations);
  }
  return text + fmt::format("Here: makespan {}, idle {}, at most {} {} and {} version(s) on a rank.\n\n", format_number(result.makespan_ms, 6),
                            format_number(idle, 5), peak,
                            schedule.slices > 1                            ? "slices"
                            : schedule.num_chunks() > schedule.num_ranks() ? "chunk activations"
                                                                           : "activations",
                            compared(schedule, result).versions);
}

constexpr const char* kHead = R"(# Schedules

<!-- Written by `pipedream schedule --document`; a test compares. Change pipedream/report/schedules_document.cpp, not this file. -->

A schedule is a list of actions per rank. What is simulated is what runs: generators, passes, validator, simulator, trainer, traces and reports share it.

## Actions

An action is written chunk, kind, micro-batch, then what is not default: `2F0`, `1I3`, `0O3v2`, `0F3s1v2`, `0SEND_F3>1`, `1RECV_F3<0`, `3F1&`.

| kind | is | | kind | is |
|---|---|---|---|---|
| `F` | forward | | `SEND_F` `RECV_F` | hands on, takes an activation; `>` and `<` name the chunk at the other end |
| `R` | forward again before the backward (recomputation) | | `SEND_B` `RECV_B` | the same of a gradient |
| `B` | whole backward | | `REDUCE` `WAIT` | sums gradients over replicas; joins a sum that runs beside other work |
| `I` `W` | its input part, its weight part | | `P` | predicts weights, `>` steps ahead |
| `O` | optimizer step: reads version v, writes v + 1; its micro-batch is the last it takes | | `D` | a version is no longer needed |

`v` is the version of the weights read: the number of steps that made it in this pass. `s` is the slice. `&` joins an action with the next one: a forward and a backward
that overlap, or transfers posted as one group. Micro-batch i of a chunk with R replicas runs on the chunk's rank number i mod R. A pass begins and ends with an empty
pipeline. An endless schedule is a prologue, a body that repeats and an epilogue, so a million micro-batches take no more room than a few.

Under `1f1b-async` with one micro-batch per step a step of a chunk takes one micro-batch per replica; replicas without one at the end of a pass still join the reduction.
A step writes into a free slot. If the version it starts from is dropped right after it, nothing else reads that version and it may write in place. Under `predict` a
forward and its backward run on a copy made for their micro-batch by `P`; their version names what it was predicted from.

## Passes

Generators emit computations and steps. `make_schedule` then assigns versions, adds reductions, recomputation, transfers and drops, folds the result, and validates it.
Transfers enter the lists of both ranks at the same moment of a walk in time, so one order of all transfers agrees with all lists: between two ranks messages pair up
first in, first out, and even a transport without buffers cannot hang.

## Validator

Nine groups, checked on prologue, two bodies and epilogue: completeness, local order, deadlock (unlimited buffers, configured, none), matching of sends and receives,
versions, accumulation, memory, order of collectives, placement. The error shows the grid with the bad cell between > and <, and who waits for whom.

## Files

CSV, one row per rank, one action per cell. Ours begins with lines of facts and writes the body once, between `[` and `]`:

```
# pipedream.schedule/1
# name 1f1b-async
# policy stash
# chunks 0,1 2            ranks per chunk
# edges 0>1
# micro-batches 12
# per-step 1
# slices 1
# body 3 2 1,2            repetitions, micro-batches, versions (of all chunks, or one per chunk)
```

Files of torch.distributed.pipelining (computations only, or with communication, `(3F1;0B2)OVERLAP_F_B` included) are read as they are and written with
`--csv-form torch` or `compute`; UNSHARD and RESHARD are skipped. Traces are Chrome trace JSON (`--trace`, opens in Perfetto), timelines HTML (`--html`), execution traces
for ASTRA-sim Chakra protobuf (`--chakra`).

## A new schedule

One file and one line. Write `pipedream/schedule/my_schedule.cpp` with a function from a request to computations, for a pipe of `positions` ranks:

```cpp
#include "pipedream/schedule/pipes.hpp"
namespace pipedream {
Schedule generate_my_schedule(const ScheduleRequest& request) {
  return flushing_pipes(request, Placement::Chain, [](const Pipes& pipes, int micro_batches) {
    ActionLists lists(pipes.positions);
    for (int r = 0; r < pipes.positions; ++r) {
      for (int i = 0; i < micro_batches; ++i) lists[r].push_back({ActionKind::Forward, r, i});
      for (int i = 0; i < micro_batches; ++i) lists[r].push_back({ActionKind::Backward, r, i});
    }
    return lists;
  });
}
}  // namespace pipedream
```

Declare it in `generators.hpp`, add the file to `CMakeLists.txt`, and its line to the table in `generate.cpp`:
`Entry{"my-schedule", "flush", generate_my_schedule, Placement::Chain, 1, "what it does"}`. Replicas, steps, rests, versions, transfers, validation, simulation,
the property and mutation tests and this page follow by themselves.

)";

}  // namespace

std::string schedules_document() {
  std::string text = kHead;
  text += fmt::format(
      "## The schedules\n\np ranks, m micro-batches per step, v chunks per rank, k slices, r a rank from 0; F, I, W times of forward, input and "
      "weight part of a rank's share of the model,\nB = I + W. The grids: {} ranks, {} micro-batches, F = I = W = 1, transfers free.\n\n",
      kRanks, kMicroBatches);
  for (const ScheduleInfo& info : list_schedules()) text += section_of(info);
  text += "## Version policies\n\n| policy | weights a forward reads |\n|---|---|\n";
  for (const auto& [name, summary] : list_policies()) text += fmt::format("| `{}` | {} |\n", name, summary);
  return text;
}

}  // namespace pipedream
