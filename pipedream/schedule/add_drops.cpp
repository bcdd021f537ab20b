#include <vector>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"

namespace pipedream {

Schedule add_drops(const Schedule& schedule) {
  Schedule result = unrolled(schedule);
  const WorkIndex index(result);
  for (RankProgram& program : result.ranks) {
    // Backwards through the list: the first time a version is met is its last use. The version that stays at the end is never dropped.
    const std::vector<char> predicted = predicted_work(result, program.prologue);
    std::vector<std::vector<char>> seen(static_cast<std::size_t>(schedule.num_chunks()));
    std::vector<int> newest(seen.size(), 0);
    for (const Action& action : program.prologue)
      if (action.kind == ActionKind::Step && action.version != Action::kNone) newest[static_cast<std::size_t>(action.chunk)] = action.version + 1;
    for (std::size_t chunk = 0; chunk < seen.size(); ++chunk) {
      seen[chunk].resize(static_cast<std::size_t>(newest[chunk]) + 1, 0);
      seen[chunk].back() = 1;
    }
    std::vector<Action> reversed;
    reversed.reserve(program.prologue.size() * 5 / 4);
    std::size_t unit_end = 0;  // where a drop goes that must not split joined actions
    for (auto action = program.prologue.rbegin(); action != program.prologue.rend(); ++action) {
      const auto chunk = static_cast<std::size_t>(action->chunk);
      if (!action->joined) unit_end = reversed.size();
      if (action->version != Action::kNone && !is_predicted(predicted, index, *action) && !seen[chunk][static_cast<std::size_t>(action->version)]) {
        seen[chunk][static_cast<std::size_t>(action->version)] = 1;
        reversed.insert(reversed.begin() + static_cast<std::ptrdiff_t>(unit_end),
                        {ActionKind::Drop, action->chunk, action->micro_batch, 0, action->version});
      }
      reversed.push_back(*action);
    }
    program.prologue.assign(reversed.rbegin(), reversed.rend());
  }
  return result;
}

}  // namespace pipedream
