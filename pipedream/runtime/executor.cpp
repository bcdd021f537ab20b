#include "pipedream/runtime/executor.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <utility>

#include "pipedream/core/error.hpp"
#include "pipedream/runtime/bucketed_sum.hpp"

namespace pipedream {

/// State of one pass on this rank.
struct Executor::Pass {
  const Schedule& schedule;
  MicroBatchSource& data;
  const StepGroups& groups;
  const PassOptions& options;
  std::vector<Action> actions;
  std::size_t posted = 0;                                   // receives among the actions before this one have been announced
  std::map<int, std::int64_t> base;                         // newest version of each chunk when the pass began
  std::map<std::pair<int, int>, MicroBatchInput> arriving;  // (chunk, micro-batch): activations received before the forward
  std::map<std::pair<int, int>, int> open;                  // (chunk, micro-batch): things to do before it may be forgotten
  std::map<int, Tensors> reduced;                           // chunk: gradients summed over replicas, waiting for the step
  std::set<int> sums_at_wait;                               // chunks whose sum a transport without background makes where it is waited for
  std::map<int, int> newest_micro_batch;                    // chunk: the last one that ran backward here since the last step
  PassReport report;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  [[nodiscard]] double now_ms() const { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(); }
  [[nodiscard]] std::int64_t version(const Action& action) const { return base.at(action.chunk) + action.version; }
};

namespace {

/// How far ahead receives are announced; each holds a buffer.
constexpr std::size_t kActionsAhead = 16;

int count_edges(const StageGraph& graph, int chunk, bool incoming) {
  return static_cast<int>(
      std::count_if(graph.edges.begin(), graph.edges.end(), [&](const ChunkEdge& e) { return (incoming ? e.target : e.source) == chunk; }));
}

std::vector<int> group_of(const Schedule& schedule, int chunk) {
  auto group = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
  std::sort(group.begin(), group.end());
  return group;
}

}  // namespace

Executor::Executor(const Model& model, const StageGraph& graph, Transport& transport, std::map<int, Stage*> stages, RankBoard* board)
    : model_(model), graph_(graph), transport_(transport), stages_(std::move(stages)), board_(board) {}

Stage& Executor::stage(int chunk) {
  const auto found = stages_.find(chunk);
  PD_CHECK(found != stages_.end(), "rank {} does not hold chunk {}", transport_.rank(), chunk);
  return *found->second;
}

PassReport Executor::run(const Schedule& schedule, MicroBatchSource& data, const StepGroups& groups, const PassOptions& options) {
  Pass pass{schedule, data, groups, options, {}, 0, {}, {}, {}, {}, {}, {}, {}};
  for_each_action(schedule, transport_.rank(), [&](const Action& action) { pass.actions.push_back(action); });
  for (auto& [chunk, stage] : stages_) pass.base[chunk] = stage->versions().newest();
  pass.report.actions.reserve(pass.actions.size());
  transport_.barrier();
  pass.start = std::chrono::steady_clock::now();
  if (options.shards != nullptr) options.shards->begin_pass(schedule.micro_batches, options.learning_rate);
  for (std::size_t i = 0; i < pass.actions.size(); ++i) {
    const Action& action = pass.actions[i];
    if (options.stop && options.stop()) throw RankError("interrupted");
    if (board_ != nullptr) board_->set(transport_.rank(), "running " + to_string(action));
    const double begin = pass.now_ms();
    try {
      post_receives(pass, i);
      execute(pass, action, i);
    } catch (const Error& error) {
      // Not the layer's fault: a file that cannot be written, another rank, an option. A bug of ours is named with its place.
      if (error.exit_code() != ExitCode::InternalError) throw;
      throw InternalError(fmt::format("rank {} in {}: {}", transport_.rank(), to_string(action), error.what()));
    } catch (const std::exception& error) {
      std::string what = error.what();
      if (const auto end = what.find("\nException raised from"); end != std::string::npos) what.resize(end);  // libtorch appends a stack
      throw RankError(fmt::format("rank {} failed in {} (stage {}, micro-batch {}): {}", transport_.rank(), to_string(action), action.chunk,
                                  action.micro_batch, what));
    }
    pass.report.actions.push_back({transport_.rank(), action, begin, pass.now_ms()});
  }
  if (options.shards != nullptr) {
    pass.report.applied = options.shards->end_pass();
    for (auto& [chunk, stage] : stages_) options.shards->read(stage->newest_parameters());
  }
  pass.report.wall_ms = pass.now_ms();
  if (board_ != nullptr) board_->set(transport_.rank(), "finished its pass");
  transport_.barrier();
  return std::move(pass.report);
}

/// Announces the receives among the next actions, so that their transfers need not wait for this rank.
void Executor::post_receives(Pass& pass, std::size_t index) {
  for (; pass.posted < std::min(index + kActionsAhead, pass.actions.size()); ++pass.posted) {
    const Action& action = pass.actions[pass.posted];
    if (!is_receive(action.kind)) continue;
    const bool gradient = action.kind == ActionKind::ReceiveGradient;
    const MessageKey key =
        gradient ? MessageKey{action.chunk, action.peer, action.micro_batch, true} : MessageKey{action.peer, action.chunk, action.micro_batch, false};
    transport_.post_receive(pass.schedule.rank_of(action.peer, action.micro_batch), key);
  }
}

void Executor::execute(Pass& pass, const Action& action, std::size_t index) {
  const int chunk = action.chunk, micro_batch = action.micro_batch;
  switch (action.kind) {
    case ActionKind::ReceiveActivation:
      pass.arriving[{chunk, micro_batch}].activations[action.peer] =
          transport_.receive(pass.schedule.rank_of(action.peer, micro_batch), {action.peer, chunk, micro_batch, false});
      return;
    case ActionKind::Forward:
      return forward(pass, action);
    case ActionKind::SendActivation:
      transport_.send(pass.schedule.rank_of(action.peer, micro_batch), {chunk, action.peer, micro_batch, false},
                      stage(chunk).output_for(micro_batch, action.peer), pass.options.bounded_messages);
      if (!pass.options.training) forget_if_done(pass, chunk, micro_batch);
      return;
    case ActionKind::ReceiveGradient:
      stage(chunk).add_output_gradient(micro_batch, action.peer,
                                       transport_.receive(pass.schedule.rank_of(action.peer, micro_batch), {chunk, action.peer, micro_batch, true}));
      return;
    case ActionKind::Backward:
      if (sums_follow(pass, index)) backward_and_sum(pass, action);
      else stage(chunk).backward(micro_batch, pass.version(action), pass.groups.loss_scale(micro_batch));
      hand_over_gradients(pass, chunk, micro_batch);
      return after_backward(pass, action);
    case ActionKind::BackwardInput:
      stage(chunk).backward_input(micro_batch, pass.version(action), pass.groups.loss_scale(micro_batch));
      hand_over_gradients(pass, chunk, micro_batch);
      return;
    case ActionKind::BackwardWeight:
      stage(chunk).backward_weight(micro_batch, pass.version(action));
      return after_backward(pass, action);
    case ActionKind::SendGradient:
      transport_.send(pass.schedule.rank_of(action.peer, micro_batch), {action.peer, chunk, micro_batch, true},
                      stage(chunk).input_gradient_for(micro_batch, action.peer), pass.options.bounded_messages);
      forget_if_done(pass, chunk, micro_batch);
      return;
    case ActionKind::Reduce:
      return reduce(pass, action, index);
    case ActionKind::Step:
      return step(pass, action, index);
    case ActionKind::Drop:
      stage(chunk).versions().drop(pass.version(action));
      return;
    case ActionKind::Wait:
      return wait(pass, action);
    case ActionKind::Recompute:  // the backward recomputes where the stage says so
      return;
    case ActionKind::Predict:
      break;
  }
  throw UsageError(fmt::format("the action {} cannot be run yet", to_string(action)), "choose another schedule or policy");
}

void Executor::forward(Pass& pass, const Action& action) {
  const int chunk = action.chunk, micro_batch = action.micro_batch;
  Stage& here = stage(chunk);
  MicroBatchInput input = std::move(pass.arriving[{chunk, micro_batch}]);
  pass.arriving.erase({chunk, micro_batch});
  for (const ChunkEdge& edge : graph_.edges)  // between two chunks of one rank there is no transfer
    if (edge.target == chunk && input.activations.count(edge.source) == 0 && pass.schedule.rank_of(edge.source, micro_batch) == transport_.rank())
      input.activations[edge.source] = stage(edge.source).output_for(micro_batch, chunk);
  MicroBatchData data = pass.data.get(micro_batch, !here.layers().model_inputs.empty());
  input.samples = std::move(data.samples);
  input.model_inputs = std::move(data.inputs);
  const auto rows = static_cast<std::int64_t>(input.samples.size());
  const bool training = pass.options.training;
  pass.open[{chunk, micro_batch}] = training ? 1 + count_edges(graph_, chunk, true) : count_edges(graph_, chunk, false);
  here.forward(micro_batch, training ? pass.version(action) : here.versions().newest(), std::move(input), training);
  if (here.layers().has_loss) {
    LossReport report{micro_batch, here.loss(micro_batch), rows, 0, 0, pass.now_ms()};
    std::tie(report.right, report.predictions) = here.hits(micro_batch);
    if (!std::isfinite(report.loss))
      throw RankError(fmt::format("the loss of micro-batch {} is {}", micro_batch, report.loss),
                      "training diverged: lower --lr, add --lr-schedule with warmup, or clip gradients");
    pass.report.losses.push_back(report);
    if (pass.options.on_loss) pass.options.on_loss(report);
  }
  if (!training && pass.open[{chunk, micro_batch}] == 0) {
    pass.open.erase({chunk, micro_batch});
    here.forget(micro_batch);
  }
}

void Executor::hand_over_gradients(Pass& pass, int chunk, int micro_batch) {
  for (const ChunkEdge& edge : graph_.edges) {
    if (edge.target != chunk || pass.schedule.rank_of(edge.source, micro_batch) != transport_.rank()) continue;
    stage(edge.source).add_output_gradient(micro_batch, chunk, stage(chunk).input_gradient_for(micro_batch, edge.source));
    forget_if_done(pass, chunk, micro_batch);
  }
}

void Executor::after_backward(Pass& pass, const Action& action) {
  pass.newest_micro_batch[action.chunk] = action.micro_batch;
  forget_if_done(pass, action.chunk, action.micro_batch);
}

void Executor::forget_if_done(Pass& pass, int chunk, int micro_batch) {
  const auto found = pass.open.find({chunk, micro_batch});
  PD_CHECK(found != pass.open.end());
  if (--found->second > 0) return;
  pass.open.erase(found);
  stage(chunk).forget(micro_batch);
}

/// Whether the next thing that this chunk does with its gradients is to sum them over replicas, and that can go on during the backward. A rank
/// with several chunks sums where the schedule says: their backwards need not end in one order on all members of a group.
bool Executor::sums_follow(const Pass& pass, std::size_t index) {
  const Action& action = pass.actions[index];
  if (pass.options.shards != nullptr || !transport_.sums_in_background() || stages_.size() > 1 || !stage(action.chunk).can_watch_gradients())
    return false;
  for (std::size_t next = index + 1; next < pass.actions.size(); ++next) {
    const Action& later = pass.actions[next];
    if (later.chunk != action.chunk) continue;
    if (later.kind == ActionKind::Reduce) return !stage(action.chunk).has_gradients_beside(pass.version(action));
    if (later.kind == ActionKind::Step || is_backward(later.kind)) return false;
  }
  return false;
}

/// The backward, with sums of gradients that start as soon as a bucket of them is complete: the last layers' first.
void Executor::backward_and_sum(Pass& pass, const Action& action) {
  Stage& here = stage(action.chunk);
  const auto& parameters = here.versions().at(pass.version(action)).parameters;
  const double scale = pass.groups.correction(action.chunk, action.micro_batch);
  BucketedSum sum(transport_, group_of(pass.schedule, action.chunk), parameters);
  here.watch_gradients([&](std::size_t i) {
    const c10::NoGradGuard no_grad;
    at::Tensor gradient = parameters[i].grad().contiguous();
    if (scale != 1) gradient.mul_(scale);
    sum.complete(i, std::move(gradient));
  });
  try {
    here.backward(action.micro_batch, pass.version(action), pass.groups.loss_scale(action.micro_batch));
  } catch (...) {
    here.watch_gradients({});
    throw;
  }
  here.watch_gradients({});
  (void)here.take_gradients();
  pass.reduced[action.chunk] = sum.rest();
}

void Executor::reduce(Pass& pass, const Action& action, std::size_t index) {
  Stage& here = stage(action.chunk);
  if (pass.options.shards != nullptr && pass.newest_micro_batch.count(action.chunk) == 0) return;  // a rest of the pass without one for this replica
  const bool waits_later = is_waited_for(pass, index);
  if (pass.reduced.count(action.chunk) > 0) {  // started during the backward
    pass.newest_micro_batch.erase(action.chunk);
    if (!waits_later) transport_.finish_all_reduces();
    return;
  }
  Tensors gradients = here.take_gradients();
  fill_undefined(gradients, here.versions().slots()[0].parameters);
  if (pass.options.shards != nullptr) return pass.options.shards->push(pass.newest_micro_batch.at(action.chunk), gradients);
  // A replica without a micro-batch in this step brings zeros, whatever the scale.
  const auto own = pass.newest_micro_batch.find(action.chunk);
  const double scale = own == pass.newest_micro_batch.end() ? 1 : pass.groups.correction(action.chunk, own->second);
  if (scale != 1)
    for (auto& gradient : gradients) gradient.mul_(scale);
  const auto group = group_of(pass.schedule, action.chunk);
  if (transport_.sums_in_background()) {  // other replicas may be summing in buckets
    BucketedSum sum(transport_, group, here.versions().slots()[0].parameters);
    for (std::size_t i = 0; i < gradients.size(); ++i) sum.complete(i, gradients[i]);
    gradients = sum.rest();
    if (!waits_later) transport_.finish_all_reduces();
  } else if (waits_later) {
    pass.sums_at_wait.insert(action.chunk);
  } else {
    transport_.all_reduce(group, gradients);
  }
  pass.newest_micro_batch.erase(action.chunk);
  pass.reduced[action.chunk] = std::move(gradients);
}

void Executor::wait(Pass& pass, const Action& action) {
  if (pass.sums_at_wait.erase(action.chunk) == 0) return transport_.finish_all_reduces();
  transport_.all_reduce(group_of(pass.schedule, action.chunk), pass.reduced.at(action.chunk));
}

bool Executor::is_waited_for(const Pass& pass, std::size_t index) {
  for (std::size_t next = index + 1; next < pass.actions.size(); ++next) {
    const Action& later = pass.actions[next];
    if (later.chunk == pass.actions[index].chunk && (later.kind == ActionKind::Wait || later.kind == ActionKind::Step))
      return later.kind == ActionKind::Wait;
  }
  return false;
}

bool Executor::steps_in_place(const Pass& pass, std::size_t index) {
  const Action& step = pass.actions[index];
  for (std::size_t next = index + 1; next < pass.actions.size(); ++next) {
    const Action& later = pass.actions[next];
    if (later.chunk != step.chunk || is_send(later.kind) || is_receive(later.kind)) continue;
    if (later.kind != ActionKind::Drop) return false;
    if (later.version == step.version) return true;
  }
  return false;
}

void Executor::step(Pass& pass, const Action& action, std::size_t index) {
  Stage& here = stage(action.chunk);
  if (WeightShards* shards = pass.options.shards) {
    pass.newest_micro_batch.erase(action.chunk);
    return here.step_to(pass.version(action), steps_in_place(pass, index), [&](const auto& parameters) { shards->read(parameters); });
  }
  Tensors gradients;
  double scale = 1;
  if (const auto found = pass.reduced.find(action.chunk); found != pass.reduced.end()) {
    gradients = std::move(found->second);
    pass.reduced.erase(found);
  } else {
    gradients = here.take_gradients();
    const auto own = pass.newest_micro_batch.find(action.chunk);
    if (own != pass.newest_micro_batch.end()) scale = pass.groups.correction(action.chunk, own->second);
    pass.newest_micro_batch.erase(action.chunk);
  }
  reduce_ties(pass, action.chunk, gradients);
  scale *= clip_scale(pass, here, gradients, scale);
  if (pass.options.on_step) pass.options.on_step(action, gradients, scale);
  const double chunk_scale = static_cast<double>(pass.groups.step_size(action.chunk)) / pass.groups.step_size(0);
  here.step(pass.version(action), steps_in_place(pass, index), gradients, pass.options.learning_rate(action.micro_batch) * chunk_scale, scale);
}

void Executor::reduce_ties(const Pass& pass, int chunk, Tensors& gradients) {
  Stage& here = stage(chunk);
  const auto& names = here.versions().parameter_names();
  for (const WeightTie& tie : model_.ties) {
    // The ranks that hold this parameter in different chunks; within a chunk the layers share the tensor.
    std::set<int> chunks, ranks;
    std::string own;
    for (const auto& place : tie.places)
      for (std::size_t c = 0; c < graph_.chunks.size(); ++c) {
        const auto& nodes = graph_.chunks[c].nodes;
        if (!std::binary_search(nodes.begin(), nodes.end(), place.layer)) continue;
        chunks.insert(static_cast<int>(c));
        ranks.insert(pass.schedule.chunk_ranks[c].begin(), pass.schedule.chunk_ranks[c].end());
        if (static_cast<int>(c) == chunk && own.empty()) own = model_.nodes[static_cast<std::size_t>(place.layer)].name + "." + place.parameter;
      }
    if (chunks.size() < 2 || chunks.count(chunk) == 0) continue;
    const auto at = std::find(names.begin(), names.end(), own);
    PD_CHECK(at != names.end(), "the tied parameter {} is not in chunk {}", own, chunk);
    const auto i = static_cast<std::size_t>(at - names.begin());
    Tensors one{gradients[i]};
    fill_undefined(one, {here.versions().slots()[0].parameters[i]});
    // Replicas of a chunk hold equal sums already: each brings its share.
    const auto replicas = pass.schedule.chunk_ranks[static_cast<std::size_t>(chunk)].size();
    if (replicas > 1) one[0] = one[0].div(static_cast<double>(replicas));
    transport_.all_reduce({ranks.begin(), ranks.end()}, one);
    gradients[i] = one[0];
  }
}

bool Executor::counts_elsewhere(const Stage& here, std::size_t parameter) const {
  const auto& nodes = here.layers().nodes;
  const std::string& name = here.versions().parameter_names()[parameter];
  for (const WeightTie& tie : model_.ties) {
    if (std::binary_search(nodes.begin(), nodes.end(), tie.places[0].layer)) continue;
    for (const auto& place : tie.places)
      if (model_.nodes[static_cast<std::size_t>(place.layer)].name + "." + place.parameter == name) return true;
  }
  return false;
}

double Executor::clip_scale(const Pass& pass, const Stage& here, const Tensors& gradients, double scale) {
  if (pass.options.clip_norm <= 0) return 1;
  double squares = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined() || counts_elsewhere(here, i)) continue;
    const double norm = gradients[i].norm(2, at::kDouble).item<double>() * scale;
    squares += norm * norm;
  }
  squares /= static_cast<double>(pass.schedule.chunk_ranks[static_cast<std::size_t>(here.chunk())].size());
  std::vector<int> everybody(static_cast<std::size_t>(transport_.num_ranks()));
  for (std::size_t i = 0; i < everybody.size(); ++i) everybody[i] = static_cast<int>(i);
  Tensors sum{at::full({1}, squares, at::kDouble)};
  transport_.all_reduce(everybody, sum);
  const double norm = std::sqrt(sum[0].item<double>());
  return norm > pass.options.clip_norm ? pass.options.clip_norm / (norm + 1e-6) : 1;
}

}  // namespace pipedream
