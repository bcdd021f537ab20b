#include "pipedream/schedule/passes.hpp"

namespace pipedream {

Schedule add_recompute(const Schedule& schedule, const std::vector<bool>& chunks) {
  Schedule result = unrolled(schedule);
  for (RankProgram& program : result.ranks) {
    std::vector<Action> list;
    list.reserve(program.prologue.size() * 3 / 2);
    std::size_t unit = 0;  // where the unit of joined actions begins that is being copied
    for (const Action& action : program.prologue) {
      if (list.empty() || !list.back().joined) unit = list.size();
      if (gives_gradient(action.kind) && chunks[static_cast<std::size_t>(action.chunk)])
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(unit),
                    {ActionKind::Recompute, action.chunk, action.micro_batch, action.slice, action.version});
      list.push_back(action);
    }
    program.prologue = std::move(list);
  }
  return result;
}

}  // namespace pipedream
