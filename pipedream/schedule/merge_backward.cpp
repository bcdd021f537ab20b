#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"

namespace pipedream {
namespace {

bool same_work(const Action& a, const Action& b) { return a.chunk == b.chunk && a.micro_batch == b.micro_batch && a.slice == b.slice; }

std::vector<Action> merged(const std::vector<Action>& list, const ChunkGraph& graph, bool only_first) {
  std::vector<Action> result;
  result.reserve(list.size());
  for (const Action& action : list) {
    const bool may = !only_first || graph.predecessors[static_cast<std::size_t>(action.chunk)].empty();
    if (may && action.kind == ActionKind::BackwardWeight && !result.empty() && result.back().kind == ActionKind::BackwardInput &&
        same_work(result.back(), action)) {
      result.back().kind = ActionKind::Backward;
      result.back().joined = action.joined;
    } else {
      result.push_back(action);
    }
  }
  return result;
}

}  // namespace

Schedule merge_backward(const Schedule& schedule, bool only_first) {
  const ChunkGraph graph = chunk_graph(schedule);
  Schedule result = schedule;  // a pair never straddles the body's edge in the lists of our generators, and need not be merged if it does
  for (RankProgram& program : result.ranks) {
    program.prologue = merged(program.prologue, graph, only_first);
    program.body = merged(program.body, graph, only_first);
    program.epilogue = merged(program.epilogue, graph, only_first);
  }
  return result;
}

}  // namespace pipedream
