#include "pipedream/plan/orders.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using Neighbours = std::vector<std::vector<int>>;

/// Takes nodes whose sources are all taken; `choose` picks the place of the next one in the list of those that are ready, oldest first.
template <typename Choose>
std::vector<int> take_ready(const Neighbours& targets, const Neighbours& sources, const Choose& choose) {
  std::vector<int> missing, ready, order;
  for (std::size_t node = 0; node < sources.size(); ++node) {
    missing.push_back(static_cast<int>(sources[node].size()));
    if (missing.back() == 0) ready.push_back(static_cast<int>(node));
  }
  while (!ready.empty()) {
    const std::size_t at = choose(ready);
    const int node = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    order.push_back(node);
    for (const int target : targets[static_cast<std::size_t>(node)])
      if (--missing[static_cast<std::size_t>(target)] == 0) ready.push_back(target);
  }
  PD_CHECK(order.size() == sources.size(), "the graph has a cycle");
  return order;
}

std::size_t oldest(const std::vector<int>&) { return 0; }
std::size_t newest(const std::vector<int>& ready) { return ready.size() - 1; }

std::vector<int> reversed(std::vector<int> order) {
  std::reverse(order.begin(), order.end());
  return order;
}

/// Bytes that cross the cut behind the nodes taken so far, kept up to date.
class Crossing {
 public:
  explicit Crossing(const WorkGraph& graph) : graph_(graph), flows_of_(static_cast<std::size_t>(graph.size())), left_(graph.flows.size()) {
    for (std::size_t f = 0; f < graph.flows.size(); ++f) {
      flows_of_[static_cast<std::size_t>(graph.flows[f].source)].push_back(f);
      for (const int target : graph.flows[f].targets) flows_of_[static_cast<std::size_t>(target)].push_back(f);
      left_[f] = static_cast<int>(graph.flows[f].targets.size());
    }
  }
  /// How much taking a node adds.
  [[nodiscard]] std::int64_t change(int node) const {
    std::int64_t bytes = 0;
    for (const std::size_t f : flows_of_[static_cast<std::size_t>(node)]) {
      const bool is_source = graph_.flows[f].source == node;
      if (is_source && !graph_.flows[f].targets.empty()) bytes += graph_.flows[f].bytes;
      if (!is_source && left_[f] == 1) bytes -= graph_.flows[f].bytes;
    }
    return bytes;
  }
  void take(int node) {
    for (const std::size_t f : flows_of_[static_cast<std::size_t>(node)])
      if (graph_.flows[f].source != node) --left_[f];
  }

 private:
  const WorkGraph& graph_;
  std::vector<std::vector<std::size_t>> flows_of_;
  std::vector<int> left_;  // targets of each flow that are not taken
};

std::vector<int> fewest_bytes(const WorkGraph& graph) {
  Crossing crossing(graph);
  return take_ready(graph.targets, graph.sources, [&](const std::vector<int>& ready) {
    std::size_t best = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < ready.size(); ++i)
      if (const std::int64_t change = crossing.change(ready[i]); change < least) least = change, best = i;
    crossing.take(ready[best]);
    return best;
  });
}

}  // namespace

std::vector<int> file_order(const WorkGraph& graph) {
  std::vector<int> order(static_cast<std::size_t>(graph.size()));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<int> breadth_first_order(const WorkGraph& graph) { return take_ready(graph.targets, graph.sources, oldest); }

std::vector<std::vector<int>> topological_orders(const WorkGraph& graph) {
  std::vector<std::vector<int>> orders{file_order(graph)};
  for (auto& order :
       {take_ready(graph.targets, graph.sources, newest), breadth_first_order(graph), reversed(take_ready(graph.sources, graph.targets, newest)),
        reversed(take_ready(graph.sources, graph.targets, oldest)), fewest_bytes(graph)})
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  return orders;
}

std::vector<int> moved(const WorkGraph& graph, const std::vector<int>& order, std::uint64_t seed) {
  const auto n = static_cast<int>(order.size());
  std::mt19937_64 engine(seed);
  const auto any = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine); };
  const int begin = any(0, n - 1), length = std::min(n - begin, 1 + any(0, std::max(1, n / 20)));
  std::set<int> run(order.begin() + begin, order.begin() + begin + length);
  // As far up or down as nobody outside the run that it needs, or that needs it, stands in the way.
  const auto blocks = [&](int node, const Neighbours& neighbours) {
    const auto& own = neighbours[static_cast<std::size_t>(node)];
    return std::any_of(own.begin(), own.end(), [&](int other) { return run.count(other) > 0; });
  };
  int first = begin, last = begin + length;
  while (first > 0 && !blocks(order[static_cast<std::size_t>(first) - 1], graph.targets)) --first;
  while (last < n && !blocks(order[static_cast<std::size_t>(last)], graph.sources)) ++last;
  const int place = any(first, last - length);
  std::vector<int> result(order.begin(), order.begin() + begin);
  result.insert(result.end(), order.begin() + begin + length, order.end());
  result.insert(result.begin() + place, order.begin() + begin, order.begin() + begin + length);
  return result;
}

}  // namespace pipedream
