#include "pipedream/runtime/step_groups.hpp"

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {

StepGroups::StepGroups(const Schedule& schedule, int loss_chunk, const std::function<std::int64_t(int)>& rows) : loss_chunk_(loss_chunk) {
  rows_before_.assign(1, 0);
  for (int i = 0; i < schedule.micro_batches; ++i) rows_before_.push_back(rows_before_.back() + rows(i));
  last_.resize(static_cast<std::size_t>(schedule.num_chunks()));
  if (replicas_step_alone(schedule)) {  // every micro-batch is a step, whichever rank makes it
    for (int i = 0; i < schedule.micro_batches; ++i)
      for (auto& last : last_) last.push_back(i);
    return;
  }
  for (int rank = 0; rank < schedule.num_ranks(); ++rank)
    for_each_action(schedule, rank, [&](const Action& action) {
      if (action.kind != ActionKind::Step) return;
      auto& last = last_[static_cast<std::size_t>(action.chunk)];
      const auto step = static_cast<std::size_t>(action.version);
      if (last.size() <= step) last.resize(step + 1, -1);
      last[step] = std::max(last[step], action.micro_batch);
    });
  for (const auto& last : last_) PD_CHECK(std::is_sorted(last.begin(), last.end()), "steps of a chunk take micro-batches out of order");
}

int StepGroups::step_of(int chunk, int micro_batch) const {
  const auto& last = last_[static_cast<std::size_t>(chunk)];
  return static_cast<int>(std::lower_bound(last.begin(), last.end(), micro_batch) - last.begin());
}

int StepGroups::step_size(int chunk) const {
  const auto& last = last_[static_cast<std::size_t>(chunk)];
  return last.empty() ? 1 : last[0] + 1;
}

std::int64_t StepGroups::rows_between(int begin, int end) const {
  return rows_before_[static_cast<std::size_t>(end)] - rows_before_[static_cast<std::size_t>(begin)];
}

std::int64_t StepGroups::group_rows(int chunk, int step) const {
  const auto& last = last_[static_cast<std::size_t>(chunk)];
  const int begin = step == 0 ? 0 : last[static_cast<std::size_t>(step) - 1] + 1;
  return rows_between(begin, last[static_cast<std::size_t>(step)] + 1);
}

double StepGroups::loss_scale(int micro_batch) const {
  const auto rows = rows_between(micro_batch, micro_batch + 1);
  const auto all = group_rows(loss_chunk_, step_of(loss_chunk_, micro_batch));
  return rows == all ? 1 : static_cast<double>(rows) / static_cast<double>(all);
}

double StepGroups::correction(int chunk, int micro_batch) const {
  const auto all = group_rows(chunk, step_of(chunk, micro_batch));
  const auto at_loss = group_rows(loss_chunk_, step_of(loss_chunk_, micro_batch));
  return all == at_loss ? 1 : static_cast<double>(at_loss) / static_cast<double>(all);
}

}  // namespace pipedream
