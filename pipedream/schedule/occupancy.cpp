#include <algorithm>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream {
namespace {

int peak_in_flight(const std::vector<Action>& list, bool split) {
  int live = 0, peak = 0;
  for (const Action& action : list) {
    if (action.kind == ActionKind::Forward) peak = std::max(peak, ++live);
    else if (action.kind == ActionKind::Backward || (split && action.kind == ActionKind::BackwardWeight)) --live;
  }
  return peak;
}

// Every version is live from the step that writes it to the last forward or backward that reads it, the newest one always.
class VersionCount {
 public:
  VersionCount(const Schedule& schedule, const std::vector<Action>& list)
      : index_(schedule), predicted_(predicted_work(schedule, list)), last_use_(static_cast<std::size_t>(schedule.num_chunks())) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!reads(list[i])) continue;
      auto& uses = last_use_[static_cast<std::size_t>(list[i].chunk)];
      const auto version = static_cast<std::size_t>(list[i].version);
      if (version >= uses.size()) uses.resize(version + 1, -1);
      uses[version] = static_cast<int>(i);
    }
  }

  void add_peaks(const std::vector<Action>& list, std::vector<int>& peaks) const {
    std::vector<int> live(peaks.size(), 1), newest(peaks.size(), 0);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const Action& action = list[i];
      const auto chunk = static_cast<std::size_t>(action.chunk);
      if (action.kind == ActionKind::Step) {
        newest[chunk] = action.version + 1;
        if (last_use(chunk, action.version) > static_cast<int>(i)) ++live[chunk];  // else the new version takes the place of the old one
      } else if (action.kind == ActionKind::Predict) {
        ++live[chunk];  // the copy made for this micro-batch
      } else if (is_predicted(predicted_, index_, action)) {
        if (ends_backward(action)) --live[chunk];
      } else if (reads(action) && action.version < newest[chunk] && last_use(chunk, action.version) == static_cast<int>(i)) {
        --live[chunk];
      }
      peaks[chunk] = std::max(peaks[chunk], live[chunk]);
    }
  }

 private:
  [[nodiscard]] bool reads(const Action& action) const {
    return action.version != Action::kNone && (action.kind <= ActionKind::BackwardWeight || action.kind == ActionKind::Predict) &&
           !is_predicted(predicted_, index_, action);
  }
  [[nodiscard]] static bool ends_backward(const Action& action) {
    return action.slice == 0 && (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight);
  }
  [[nodiscard]] int last_use(std::size_t chunk, int version) const {
    const auto& uses = last_use_[chunk];
    return static_cast<std::size_t>(version) < uses.size() ? uses[static_cast<std::size_t>(version)] : -1;
  }

  WorkIndex index_;
  std::vector<char> predicted_;
  std::vector<std::vector<int>> last_use_;  ///< per chunk and version the index in the list, -1 if none
};

}  // namespace

Occupancy occupancy(const Schedule& schedule) {
  int replicas = 0;
  for (const auto& ranks : schedule.chunk_ranks) replicas += static_cast<int>(ranks.size());
  Schedule window = truncated(schedule, schedule.body_micro_batches > 0 ? 3 + 2 * replicas / schedule.body_micro_batches : 0);
  const bool assigned = std::any_of(window.ranks.begin(), window.ranks.end(), [](const RankProgram& program) {
    const auto& some = program.prologue.empty() ? (program.body.empty() ? program.epilogue : program.body) : program.prologue;
    return std::any_of(some.begin(), some.end(), [](const Action& action) { return action.version != Action::kNone; });
  });
  if (!assigned) window = assign_versions(window);
  Occupancy result;
  result.versions.assign(static_cast<std::size_t>(schedule.num_chunks()), 1);
  for (const auto& list : action_lists(window)) {
    const bool split = std::any_of(list.begin(), list.end(), [](const Action& action) { return action.kind == ActionKind::BackwardWeight; });
    result.in_flight.push_back(peak_in_flight(list, split));
    VersionCount(window, list).add_peaks(list, result.versions);
  }
  return result;
}

int versions_needed(const Schedule& schedule, int chunk) { return occupancy(schedule).versions[static_cast<std::size_t>(chunk)]; }

}  // namespace pipedream
