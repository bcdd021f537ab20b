#include "pipedream/plan/device_orders.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace pipedream {
namespace {

class Arranger {
 public:
  Arranger(const Cluster& cluster, const std::vector<int>& kinds, int most)
      : cluster_(cluster), kinds_(kinds), most_(static_cast<std::size_t>(most)) {}

  DeviceOrders run() {
    DeviceOrders result{arrange(static_cast<int>(cluster_.levels.size()) - 1, 0, cluster_.num_devices()), all_};
    return result;
  }

 private:
  using Order = std::vector<int>;

  [[nodiscard]] std::vector<int> kinds_of(const Order& order) const {
    std::vector<int> result;
    for (const int device : order) result.push_back(kinds_[static_cast<std::size_t>(device)]);
    return result;
  }

  /// Orders of the `size` devices from `first` on, a group of this level.
  std::vector<Order> arrange(int level, int first, int size) {
    if (level < 0) return {{first}};
    const int parts = cluster_.levels[static_cast<std::size_t>(level)].size, part = size / parts;
    std::vector<std::vector<Order>> of_part;
    std::map<std::set<std::vector<int>>, int> classes;  // parts with the same possibilities may stand for each other
    std::vector<int> class_of;
    for (int i = 0; i < parts; ++i) {
      of_part.push_back(arrange(level - 1, first + i * part, part));
      std::set<std::vector<int>> looks;
      for (const Order& order : of_part.back()) looks.insert(kinds_of(order));
      class_of.push_back(classes.emplace(looks, static_cast<int>(classes.size())).first->second);
    }
    std::vector<Order> result;
    std::set<std::vector<int>> seen;
    std::vector<int> arrangement = class_of;  // that of the file first, then all others
    add(of_part, class_of, arrangement, result, seen);
    std::sort(arrangement.begin(), arrangement.end());
    do {
      if (result.size() > most_) break;
      add(of_part, class_of, arrangement, result, seen);
    } while (std::next_permutation(arrangement.begin(), arrangement.end()));
    if (result.size() > most_) {
      all_ = false;
      result.resize(most_);
    }
    return result;
  }

  /// The orders in which parts of the given classes follow each other.
  void add(const std::vector<std::vector<Order>>& of_part, const std::vector<int>& class_of, const std::vector<int>& arrangement,
           std::vector<Order>& result, std::set<std::vector<int>>& seen) {
    std::vector<Order> orders{{}};
    std::vector<bool> taken(of_part.size(), false);
    for (const int wanted : arrangement) {
      std::size_t i = 0;
      while (taken[i] || class_of[i] != wanted) ++i;
      taken[i] = true;
      std::vector<Order> longer;
      for (const Order& start : orders)
        for (const Order& end : of_part[i]) {
          if (longer.size() > most_) break;
          longer.push_back(start);
          longer.back().insert(longer.back().end(), end.begin(), end.end());
        }
      orders = std::move(longer);
    }
    for (Order& order : orders)
      if (seen.insert(kinds_of(order)).second) result.push_back(std::move(order));
  }

  const Cluster& cluster_;
  const std::vector<int>& kinds_;
  std::size_t most_;
  bool all_ = true;
};

}  // namespace

DeviceOrders device_orders(const Cluster& cluster, const std::vector<int>& kinds, int most) {
  if (!cluster.links.empty()) {  // no two places are alike
    std::vector<int> order(kinds.size());
    std::iota(order.begin(), order.end(), 0);
    return {{order}, std::all_of(kinds.begin(), kinds.end(), [&](int kind) { return kind == kinds.front(); })};
  }
  return Arranger(cluster, kinds, most).run();
}

}  // namespace pipedream
