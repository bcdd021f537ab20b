#include <algorithm>
#include <map>

#include "pipedream/schedule/chunk_graph.hpp"
#include "pipedream/schedule/passes.hpp"

namespace pipedream {
namespace {

struct Receive {
  std::size_t place;  // before which other action it stands
  Action action;
};

bool takes(const Action& user, const Action& receive) {
  const bool kind = receive.kind == ActionKind::ReceiveActivation ? user.kind == ActionKind::Forward : gives_gradient(user.kind);
  return kind && user.chunk == receive.chunk && user.micro_batch == receive.micro_batch && user.slice == receive.slice;
}

std::vector<Action> hoisted(const Schedule& schedule, const std::vector<Action>& list, std::size_t buffers) {
  std::vector<Action> others;
  std::vector<Receive> receives;
  for (const Action& action : list) {
    if (is_receive(action.kind)) receives.push_back({others.size(), action});
    else others.push_back(action);
  }
  std::map<int, std::vector<std::size_t>> freed;  // per sending rank: behind which action the k-th message is used up
  std::map<int, std::size_t> earliest;            // per sending rank: receives stay in order
  for (Receive& receive : receives) {
    const int source = schedule.rank_of(receive.action.peer, receive.action.micro_batch);
    auto& uses = freed[source];
    std::size_t use = receive.place;
    while (use < others.size() && !takes(others[use], receive.action)) ++use;
    const std::size_t k = uses.size();
    std::size_t& at = earliest[source];
    if (k >= buffers) at = std::max(at, uses[k - buffers]);
    uses.push_back(std::max(use + 1, k > 0 ? uses[k - 1] : 0));
    receive.place = std::min(receive.place, at);
    while (receive.place > 0 && receive.place < others.size() && others[receive.place - 1].joined) ++receive.place;
  }
  std::stable_sort(receives.begin(), receives.end(), [](const Receive& a, const Receive& b) { return a.place < b.place; });
  std::vector<Action> result;
  result.reserve(list.size());
  auto next = receives.begin();
  for (std::size_t i = 0; i <= others.size(); ++i) {
    for (; next != receives.end() && next->place == i; ++next) result.push_back(next->action);
    if (i < others.size()) result.push_back(others[i]);
  }
  return result;
}

}  // namespace

Schedule hoist_receives(const Schedule& schedule, int buffers) {
  Schedule result = unrolled(schedule);
  for (RankProgram& program : result.ranks) program.prologue = hoisted(schedule, program.prologue, static_cast<std::size_t>(std::max(1, buffers)));
  return result;
}

}  // namespace pipedream
