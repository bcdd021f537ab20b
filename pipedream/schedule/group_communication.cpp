#include "pipedream/schedule/passes.hpp"

namespace pipedream {

Schedule group_communication(const Schedule& schedule) {
  Schedule result = unrolled(schedule);
  for (RankProgram& program : result.ranks) {
    auto& list = program.prologue;
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      if (!is_transfer(list[i].kind) || !is_transfer(list[i + 1].kind) || is_send(list[i].kind) == is_send(list[i + 1].kind)) continue;
      if (schedule.rank_of(list[i].peer, list[i].micro_batch) == schedule.rank_of(list[i + 1].peer, list[i + 1].micro_batch)) list[i].joined = true;
    }
  }
  return result;
}

}  // namespace pipedream
