#include <algorithm>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/search.hpp"

namespace pipedream {
namespace {

class Padding {
 public:
  Padding(const SearchSpace& space, double threshold)
      : space_(space), threshold_(threshold), work_(static_cast<std::size_t>(space.cuts->num_measurements())) {}

  std::optional<Found> run(Found found) {
    int left = space_.layout->labels - 1;
    for (const FoundStage& stage : found.stages) left -= replicas_of(stage);
    // Where replicas are cheapest first: the stages with the fewest bytes of weights.
    std::vector<std::size_t> order(found.stages.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return bytes_of(found.stages[a]) < bytes_of(found.stages[b]); });
    for (const std::size_t i : order) {
      if (left == 0) break;
      const int more = most_more(found.stages[i], left);
      found.stages[i].take.setting += more;
      left -= more;
    }
    if (left > 0) return std::nullopt;
    return measured(std::move(found));
  }

 private:
  [[nodiscard]] int replicas_of(const FoundStage& stage) const {
    return space_.layout->settings[static_cast<std::size_t>(stage.take.setting)].replicas;
  }
  std::int64_t bytes_of(const FoundStage& stage) {
    space_.cuts->stage_work(stage.low, stage.high, work_.data());
    return work_.front().parameter_bytes;
  }
  double load_ms(const StageSum& sum, int setting, bool recompute) const {
    return space_.cost->time(sum, space_.layout->settings[static_cast<std::size_t>(setting)], recompute).load_ms;
  }

  // How many replicas more the stage may have, at most `left`: all of them if that suits, else as many as suit one after the other.
  int most_more(const FoundStage& stage, int left) {
    const StageSum sum = space_.cuts->stage(stage.low, stage.high, work_.data());
    const int most = std::min(left, static_cast<int>(space_.layout->settings.size()) - 1 - stage.take.setting);
    if (load_ms(sum, stage.take.setting + most, stage.recompute) <= threshold_) return most;
    int more = 0;
    while (more < most && load_ms(sum, stage.take.setting + more + 1, stage.recompute) <= threshold_) ++more;
    return more;
  }

  // Labels, load and traffic anew; nothing if a stage lacks memory now that more ranks follow it.
  std::optional<Found> measured(Found found) {
    int used = 0;
    for (auto stage = found.stages.rbegin(); stage != found.stages.rend(); ++stage) {
      const StageSetting& setting = space_.layout->settings[static_cast<std::size_t>(stage->take.setting)];
      const StageSum sum = space_.cuts->stage(stage->low, stage->high, work_.data());
      stage->label = used;
      stage->take.next = used += setting.replicas;
      const InFlight in_flight = (*space_.in_flight)({setting.replicas, used});
      if (space_.cost->memory_bytes(sum, setting, in_flight, stage->recompute) > space_.cost->memory_limit(setting)) return std::nullopt;
    }
    auto next = found.stages.begin();
    return follow(space_, used, [&](int, int) { return *next++; });
  }

  const SearchSpace& space_;
  double threshold_;
  std::vector<Work> work_;
};

}  // namespace

std::optional<Found> use_all_devices(const SearchSpace& space, double threshold_ms, Found found) {
  PD_CHECK(space.layout->form == DeviceLayout::Form::Uniform);
  return Padding(space, threshold_ms).run(std::move(found));
}

}  // namespace pipedream
