#include <fmt/format.h>

#include <algorithm>

#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/validation.hpp"

namespace pipedream {
namespace {

double entry(const std::vector<double>& values, int chunk, double otherwise) {
  return static_cast<std::size_t>(chunk) < values.size() ? values[static_cast<std::size_t>(chunk)] : otherwise;
}

}  // namespace

Finding check_memory(const Checked& checked) {
  if (!checked.options.memory) return {};
  const MemoryModel& model = *checked.options.memory;
  const Occupancy peaks = model.version.empty() ? Occupancy{} : occupancy(checked.schedule);
  for (int rank = 0; rank < checked.schedule.num_ranks(); ++rank) {
    double held = 0;
    for (const int chunk : chunks_of(checked.schedule, rank)) {
      held += entry(model.fixed, chunk, 0);
      if (!model.version.empty()) held += model.version[static_cast<std::size_t>(chunk)] * peaks.versions[static_cast<std::size_t>(chunk)];
    }
    const double limit = entry(model.limit, rank, 1e300);
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      const double activation = entry(model.activation, action.chunk, 0), weight = entry(model.weight_share, action.chunk, activation);
      if (action.kind == ActionKind::Forward) held += activation;
      if (held > limit * (1 + 1e-12))
        return checked.violation(RuleGroup::Memory, rank, static_cast<int>(i),
                                 fmt::format("at {} rank {} holds {:.6g}, its limit is {:.6g}", to_string(action), rank, held, limit));
      if (action.kind == ActionKind::Backward) held -= activation;
      if (action.kind == ActionKind::BackwardInput) held -= activation - weight;
      if (action.kind == ActionKind::BackwardWeight) held -= weight;
    }
  }
  return {};
}

}  // namespace pipedream
