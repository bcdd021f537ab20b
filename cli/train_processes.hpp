#pragma once

#include <string>

#include "cli/launch.hpp"
#include "cli/train_output.hpp"
#include "cli/train_setup.hpp"

/// `pipedream train` with a process per rank: what the processes share, and who shows what.
namespace pipedream::cli {

/// Ranks of a run that is to be started: of the plan, the shape, the cluster file, or --ranks.
[[nodiscard]] int count_ranks(const TrainSetup& setup);

/// prepare() where all ranks have one plan: rank 0 measures and plans (or reads the plan) and tells the others. All must have the same
/// settings and see the same data. @throws RankError
[[nodiscard]] Prepared prepare_shared(TrainSetup setup, const std::string& settings, ProcessRun& process);

/// Rank 0 has done what it does alone ("to measure one device"); the others wait for it. Once a `what`.
void start_together(ProcessRun& process, const std::string& what);

/// Trains the ranks of this process. The whole result where rank 0 is. @param folder of rank 0, may be null
[[nodiscard]] TrainResult train_process(ProcessRun& process, const Prepared& prepared, const TrainOptions& options, RunFolder* folder);

/// --verify: runs the first steps, then again on one rank, and says how far they are from each other. `process` is null where ranks are
/// threads. @throws RankError if they are farther apart than rounding explains
void verify_first_steps(ProcessRun* process, const Prepared& prepared, TrainOptions options);

}  // namespace pipedream::cli
