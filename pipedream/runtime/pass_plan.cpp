#include "pipedream/runtime/pass_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipedream/core/error.hpp"
#include "pipedream/runtime/evaluation.hpp"
#include "pipedream/runtime/trainer.hpp"
#include "pipedream/schedule/generate.hpp"

namespace pipedream {
namespace {

/// Makes each schedule once: most epochs have the same number of micro-batches.
class ScheduleMaker {
 public:
  ScheduleMaker(const Plan& plan, const StageGraph& graph, const TrainOptions& options) : plan_(plan), graph_(graph), options_(options) {}
  std::shared_ptr<const Schedule> operator()(int micro_batches) {
    auto& made = made_[micro_batches];
    if (!made)
      made = std::make_shared<const Schedule>(schedule_of(plan_, graph_, micro_batches, options_.extra_in_flight, options_.overlap_reductions));
    return made;
  }

 private:
  const Plan& plan_;
  const StageGraph& graph_;
  const TrainOptions& options_;
  std::map<int, std::shared_ptr<const Schedule>> made_;
};

std::shared_ptr<const StepGroups> groups_of(const Schedule& schedule, int loss_chunk, const MicroBatchSource& source, int first = 0) {
  return std::make_shared<const StepGroups>(schedule, loss_chunk, [&](int i) { return source.rows(first + i); });
}

PassPlan evaluation_pass(int epoch, const Schedule& training, int loss_chunk, const MicroBatchSource& test) {
  PassPlan pass;
  pass.epoch = epoch;
  pass.training = false;
  pass.schedule = std::make_shared<const Schedule>(evaluation_schedule(training, test.num_micro_batches()));
  pass.epoch_micro_batches = pass.schedule->micro_batches;
  pass.groups = groups_of(*pass.schedule, loss_chunk, test);
  return pass;
}

void check_ties(const Model& model, const Plan& plan, const StageGraph& graph) {
  if (plan.policy == "flush") return;
  for (const WeightTie& tie : model.ties)
    for (const auto& place : tie.places)
      for (const auto& chunk : graph.chunks) {
        const auto holds = [&](int layer) { return std::binary_search(chunk.nodes.begin(), chunk.nodes.end(), layer); };
        if (holds(place.layer) == holds(tie.places[0].layer)) continue;
        throw UsageError(
            fmt::format("the layers '{}' and '{}' share a weight and lie in different stages, which needs a schedule that flushes (policy is {})",
                        model.nodes[static_cast<std::size_t>(tie.places[0].layer)].name, model.nodes[static_cast<std::size_t>(place.layer)].name,
                        plan.policy),
            "choose --schedule 1f1b or gpipe, or keep both layers in one stage");
      }
}

}  // namespace

Schedule schedule_of(const Plan& plan, const StageGraph& graph, int micro_batches, int extra_in_flight, bool overlap_reductions) {
  ScheduleRequest request;
  request.name = plan.schedule;
  request.policy = plan.policy;
  for (const auto& stage : plan.stages) request.chunk_ranks.push_back(stage.ranks);
  request.edges = graph.edge_list();
  request.micro_batches = micro_batches;
  request.step_micro_batches = plan.micro_batches;
  request.extra_in_flight = extra_in_flight;
  request.overlap_reductions = overlap_reductions;
  return make_schedule(request);
}

RunPlan plan_run(const Model& model, const Plan& plan, const TrainOptions& options, const SourceFactory& sources) {
  RunPlan run;
  std::vector<std::vector<std::string>> stages;
  for (const auto& stage : plan.stages) stages.push_back(stage.layers);
  run.graph = cut_model(model, stages);
  check_ties(model, plan, run.graph);
  if (plan.policy == "predict" || plan.policy == "none")
    throw UsageError(fmt::format("the policy {} can be scheduled and simulated, but not run", plan.policy),
                     "choose stash, vertical-sync, 2bw or flush");
  for (std::size_t chunk = 0; chunk < run.graph.chunks.size(); ++chunk)
    if (run.graph.chunks[chunk].has_loss) run.loss_chunk = static_cast<int>(chunk);
  run.slots.assign(plan.stages.size(), 1);
  ScheduleMaker make(plan, run.graph, options);
  std::int64_t steps_left = options.steps;
  for (int epoch = 0; options.steps > 0 ? steps_left > 0 : epoch < options.epochs; ++epoch) {
    const auto source = sources({epoch, true, {}, 1});
    int size = source->num_micro_batches();
    if (size < 1) throw UsageError("the training data has no micro-batch", "choose another data set or a smaller --micro-batch");
    if (options.steps > 0) {
      // The micro-batches of the steps that are left; a whole epoch's schedule tells the size of a step.
      const auto groups = groups_of(*make(size), run.loss_chunk, *source);
      const auto steps = std::min<std::int64_t>(steps_left, groups->num_steps(run.loss_chunk));
      if (steps < groups->num_steps(run.loss_chunk)) size = static_cast<int>(steps) * groups->step_size(run.loss_chunk);
      steps_left -= steps;
    }
    const auto test = options.evaluate ? sources({epoch, false, {}, 1}) : nullptr;
    for (int first = 0; first < size;) {
      int part = size - first;
      if (options.evaluate_every > 0 && test) {
        const auto groups = groups_of(*make(part), run.loss_chunk, *source, first);
        part = static_cast<int>(std::min<std::int64_t>(part, options.evaluate_every * groups->step_size(run.loss_chunk)));
      }
      PassPlan pass;
      pass.epoch = epoch;
      pass.first_micro_batch = first;
      pass.epoch_micro_batches = size;
      pass.schedule = make(part);
      pass.groups = groups_of(*pass.schedule, run.loss_chunk, *source, first);
      pass.first_update = run.total_updates;
      for (int i = 0; i < part; ++i) pass.rows += source->rows(first + i);
      run.total_updates += pass.groups->num_steps(run.loss_chunk);
      for (int chunk = 0; chunk < pass.schedule->num_chunks(); ++chunk) {
        auto& slots = run.slots[static_cast<std::size_t>(chunk)];
        slots = std::max(slots, versions_needed(*pass.schedule, chunk));
      }
      run.passes.push_back(pass);
      first += part;
      if (test && test->num_micro_batches() > 0) run.passes.push_back(evaluation_pass(epoch, *pass.schedule, run.loss_chunk, *test));
    }
  }
  const Schedule& first = *run.passes[0].schedule;
  for (const RankProgram& program : first.ranks)
    for (const auto* part : {&program.prologue, &program.body, &program.epilogue})
      for (const Action& action : *part) run.split_backward = run.split_backward || action.kind == ActionKind::BackwardInput;
  return run;
}

}  // namespace pipedream
