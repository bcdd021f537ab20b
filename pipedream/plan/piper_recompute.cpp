#include "pipedream/plan/piper_recompute.hpp"

#include <algorithm>
#include <tuple>

namespace pipedream {
namespace {

constexpr double kSlack = 1 - 1e-9;  // bounds are floating point: nothing is cut off by rounding

}  // namespace

PiperRecompute::PiperRecompute(const PiperWork& work, std::size_t degree, int in_flight) {
  for (int node = 0; node < work.nodes; ++node) {
    const PiperLayerWork& layer = work.layer(degree, node);
    Group group;
    group.node = node;
    group.price = 1e300;
    for (const PiperChoice& choice : layer.leaner) {
      const std::int64_t saved = (layer.a_bytes - choice.a_bytes) * in_flight + layer.b_bytes - choice.b_bytes;
      if (saved <= 0) continue;
      group.items.push_back({choice.variant, choice.extra, saved});
      group.price = std::min(group.price, static_cast<double>(choice.extra) / static_cast<double>(saved));
      group.most_saved = std::max(group.most_saved, saved);
    }
    if (group.items.empty()) continue;
    std::sort(group.items.begin(), group.items.end(),
              [](const Item& a, const Item& b) { return std::tie(b.saved, a.extra) < std::tie(a.saved, b.extra); });
    groups_.push_back(std::move(group));
  }
  std::stable_sort(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) { return a.price < b.price; });
}

double PiperRecompute::bound(std::size_t from, std::int64_t need) const {
  if (need <= 0) return 0;
  const double target = saved_until_[from] + static_cast<double>(need);
  const auto at = std::lower_bound(saved_until_.begin() + static_cast<std::ptrdiff_t>(from), saved_until_.end(), target);
  if (at == saved_until_.end()) return 1e300;
  const auto last = static_cast<std::size_t>(at - saved_until_.begin()) - 1;
  const double part = (target - saved_until_[last]) * groups_[static_cast<std::size_t>(stage_[last])].price;
  return (extra_until_[last] - extra_until_[from] + part) * kSlack;
}

std::vector<std::pair<int, int>> PiperRecompute::trace(const State& state) const {
  std::vector<std::pair<int, int>> result;
  for (const State* s = &state; s->group >= 0; s = &arena_[static_cast<std::size_t>(s->before)]) {
    const Group& group = groups_[static_cast<std::size_t>(s->group)];
    result.emplace_back(group.node, group.items[static_cast<std::size_t>(s->item)].variant);
  }
  return result;
}

void PiperRecompute::keep_best(std::vector<State>& states) const {
  std::stable_sort(states.begin(), states.end(),
                   [](const State& a, const State& b) { return std::tie(a.extra, b.saved) < std::tie(b.extra, a.saved); });
  std::int64_t most = -1;
  std::size_t kept = 0;
  for (const State& state : states)
    if (state.saved > most) {
      most = state.saved;
      states[kept++] = state;
    }
  states.resize(kept);
}

std::optional<std::vector<std::pair<int, int>>> PiperRecompute::choose_from_stage(std::int64_t need, std::int64_t budget) {
  saved_until_.assign(1, 0);
  extra_until_.assign(1, 0);
  for (const int g : stage_) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    saved_until_.push_back(saved_until_.back() + static_cast<double>(group.most_saved));
    extra_until_.push_back(extra_until_.back() + static_cast<double>(group.most_saved) * group.price);
  }
  const double limit = static_cast<double>(budget);
  if (bound(0, need) > limit) return std::nullopt;
  arena_.clear();
  // All in order of price, each in its leanest form, until enough is saved.
  State whole;
  for (std::size_t i = 0; i < stage_.size() && whole.saved < need; ++i) {
    const Item& item = groups_[static_cast<std::size_t>(stage_[i])].items.front();
    arena_.push_back(whole);
    whole = {whole.saved + item.saved, whole.extra + item.extra, static_cast<int>(arena_.size()) - 1, stage_[i], 0};
  }
  if (whole.saved >= need && whole.extra <= budget) return trace(whole);

  arena_.clear();
  std::vector<State> states{State{}}, next;
  for (std::size_t i = 0; i < stage_.size() && !states.empty(); ++i) {
    const Group& group = groups_[static_cast<std::size_t>(stage_[i])];
    next.clear();
    for (const State& state : states) {
      if (state.extra + bound(i + 1, need - state.saved) <= limit) next.push_back(state);
      int before = -1;
      for (std::size_t k = 0; k < group.items.size(); ++k) {
        State grown{state.saved + group.items[k].saved, state.extra + group.items[k].extra, 0, stage_[i], static_cast<int>(k)};
        if (grown.extra > budget || static_cast<double>(grown.extra) + bound(i + 1, need - grown.saved) > limit) continue;
        if (before < 0) {
          before = static_cast<int>(arena_.size());
          arena_.push_back(state);
        }
        grown.before = before;
        if (grown.saved >= need) return trace(grown);
        next.push_back(grown);
      }
    }
    keep_best(next);
    states.swap(next);
  }
  return std::nullopt;
}

}  // namespace pipedream
