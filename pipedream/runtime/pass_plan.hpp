#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/micro_batches.hpp"
#include "pipedream/runtime/stage_graph.hpp"
#include "pipedream/runtime/step_groups.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// One pass over data: what all ranks do at the same time.
struct PassPlan {
  int epoch = 0;
  bool training = true;
  int first_micro_batch = 0;    ///< of the epoch: an epoch is several passes where it is evaluated in between
  int epoch_micro_batches = 0;  ///< of all its passes; of an evaluation its own
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<const StepGroups> groups;
  std::int64_t first_update = 0;  ///< updates of the stage with the loss before this pass
  std::int64_t rows = 0;
};

/// All passes of a run, and what follows from them. A function of the run's settings, so every rank works it out for itself.
struct RunPlan {
  StageGraph graph;
  int loss_chunk = 0;
  std::vector<PassPlan> passes;
  std::int64_t total_updates = 0;
  std::vector<int> slots;  ///< weight versions held, per chunk
  bool split_backward = false;
};

struct TrainOptions;

/// The schedule of a training pass over `micro_batches` micro-batches. The last two as in ScheduleRequest.
[[nodiscard]] Schedule schedule_of(const Plan& plan, const StageGraph& graph, int micro_batches, int extra_in_flight, bool overlap_reductions);

/// @throws UsageError if there is no data or the schedule does not suit it, InputError if the plan does not fit the model
[[nodiscard]] RunPlan plan_run(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources);

}  // namespace pipedream
