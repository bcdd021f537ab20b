#include "pipedream/plan/search.hpp"

#include <algorithm>

namespace pipedream {

Found follow(const SearchSpace& space, int label, const std::function<FoundStage(int cut, int label)>& stage_above) {
  Found found;
  std::vector<Work> work(static_cast<std::size_t>(space.cuts->num_measurements()));
  for (int cut = 0; cut != space.cuts->size() - 1;) {
    const FoundStage stage = stage_above(cut, label);
    const StageSetting& setting = space.layout->settings[static_cast<std::size_t>(stage.take.setting)];
    const StageSum sum = space.cuts->stage(cut, stage.high, work.data());
    const StageTime time = space.cost->time(sum, setting, stage.recompute);
    found.stages.push_back(stage);
    found.largest_load_ms = std::max(found.largest_load_ms, time.load_ms);
    found.fill_ms += time.fill_ms;
    found.traffic_bytes += space.cost->traffic_bytes(sum, setting);
    label = stage.label;
    cut = stage.high;
  }
  return found;
}

}  // namespace pipedream
