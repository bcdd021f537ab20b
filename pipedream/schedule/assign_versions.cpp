#include <fmt/format.h>

#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/policy.hpp"

namespace pipedream {
namespace {

/// What a version policy needs to know of a list: per micro-batch the steps its rank had made at its first forward and at the end of its backward.
struct StepCounts {
  std::vector<int> at_forward, at_backward;  ///< by chunk * micro_batches + micro-batch; -1 where there is none
};

StepCounts count_steps(const Schedule& schedule, const ActionLists& lists) {
  const auto size = static_cast<std::size_t>(schedule.num_chunks()) * static_cast<std::size_t>(schedule.micro_batches);
  StepCounts counts{std::vector<int>(size, -1), std::vector<int>(size, -1)};
  std::vector<int> steps(static_cast<std::size_t>(schedule.num_chunks()));
  for (const auto& list : lists) {
    std::fill(steps.begin(), steps.end(), 0);
    for (const Action& action : list) {
      const auto chunk = static_cast<std::size_t>(action.chunk);
      const std::size_t work = chunk * static_cast<std::size_t>(schedule.micro_batches) + static_cast<std::size_t>(action.micro_batch);
      if (action.kind == ActionKind::Step) ++steps[chunk];
      else if (action.kind == ActionKind::Forward && counts.at_forward[work] < 0) counts.at_forward[work] = steps[chunk];
      else if (is_backward(action.kind)) counts.at_backward[work] = steps[chunk];
    }
  }
  return counts;
}

void require_enough_micro_batches(const Schedule& schedule) {
  const std::vector<int> downstream = ranks_downstream(schedule);
  const int depth = *std::max_element(downstream.begin(), downstream.end());
  if (schedule.step_micro_batches < depth)
    throw UsageError(
        fmt::format("policy 2bw needs at least as many micro-batches per step as ranks in the pipe: {} < {}", schedule.step_micro_batches, depth),
        fmt::format("use {} or more micro-batches per step, or policy stash", depth));
}

class Assigner {
 public:
  explicit Assigner(const Schedule& schedule)
      : schedule_(schedule), policies_(chunk_policies(schedule)), lists_(action_lists(schedule)), counts_(count_steps(schedule, lists_)) {}

  ActionLists run() {
    const bool double_buffer = std::find(policies_.begin(), policies_.end(), VersionPolicy::DoubleBuffer) != policies_.end();
    if (double_buffer && schedule_.name == "1f1b-async") require_enough_micro_batches(schedule_);
    for (auto& list : lists_) assign(list);
    return std::move(lists_);
  }

 private:
  [[nodiscard]] std::size_t work(const Action& action) const {
    return static_cast<std::size_t>(action.chunk) * static_cast<std::size_t>(schedule_.micro_batches) + static_cast<std::size_t>(action.micro_batch);
  }

  /// Version of the weights that a forward and its backward read.
  [[nodiscard]] int version_of(const Action& action) const {
    const int newest = counts_.at_forward[work(action)];
    switch (policies_[static_cast<std::size_t>(action.chunk)]) {
      case VersionPolicy::DoubleBuffer:
        return std::max(action.micro_batch / schedule_.step_micro_batches - 1, 0);
      case VersionPolicy::VerticalSync: {
        // The tag is what the first chunk has taken into its weights, counted in micro-batches, because chunks with other numbers of replicas
        // step at another rate.
        Action source = action;
        source.chunk = 0;
        const std::int64_t taken = static_cast<std::int64_t>(counts_.at_forward[work(source)]) * micro_batches_per_step(schedule_, 0);
        return static_cast<int>(taken / micro_batches_per_step(schedule_, action.chunk));
      }
      default:
        return newest;
    }
  }

  void assign(std::vector<Action>& list) const {
    std::vector<int> steps(static_cast<std::size_t>(schedule_.num_chunks()), 0);
    std::vector<Action> result;
    const bool predicts = std::find(policies_.begin(), policies_.end(), VersionPolicy::Predict) != policies_.end();
    if (predicts) result.reserve(list.size() * 3 / 2);
    for (Action& action : list) {
      const auto chunk = static_cast<std::size_t>(action.chunk);
      const VersionPolicy policy = policies_[chunk];
      if (action.kind == ActionKind::Step) {
        action.version = steps[chunk]++;
      } else if (action.kind <= ActionKind::BackwardWeight) {
        action.version = policy == VersionPolicy::None ? steps[chunk] : version_of(action);
        const int ahead = counts_.at_backward[work(action)] - counts_.at_forward[work(action)];
        if (policy == VersionPolicy::Predict && action.kind == ActionKind::Forward && action.slice == 0 && ahead > 0)
          result.push_back({ActionKind::Predict, action.chunk, action.micro_batch, 0, action.version, ahead});
      }
      if (predicts) result.push_back(action);
    }
    if (predicts) list = std::move(result);
  }

  const Schedule& schedule_;
  std::vector<VersionPolicy> policies_;
  ActionLists lists_;
  StepCounts counts_;
};

}  // namespace

Schedule assign_versions(const Schedule& schedule) {
  Schedule result = unrolled(schedule);
  ActionLists lists = Assigner(result).run();
  for (std::size_t rank = 0; rank < lists.size(); ++rank) result.ranks[rank].prologue = std::move(lists[rank]);
  return result;
}

}  // namespace pipedream
