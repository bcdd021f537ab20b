#include "pipedream/plan/device_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/device_orders.hpp"
#include "pipedream/plan/network.hpp"

namespace pipedream {
namespace {

// Settings are few, takes are many: equal settings get one index.
class SettingTable {
 public:
  explicit SettingTable(std::vector<StageSetting>& settings) : settings_(settings) {}
  int index_of(const StageSetting& s) {
    const Key key{s.replicas,
                  s.kinds,
                  {s.in_ms_per_byte, s.in_latency_ms, s.out_ms_per_byte, s.out_latency_ms, s.reduce[0].ms_per_byte, s.reduce[0].latency_ms,
                   s.reduce[1].ms_per_byte, s.reduce[1].latency_ms}};
    const auto [at, fresh] = index_.emplace(key, static_cast<int>(settings_.size()));
    if (fresh) settings_.push_back(s);
    return at->second;
  }

 private:
  using Key = std::tuple<int, std::vector<int>, std::array<double, 8>>;
  std::vector<StageSetting>& settings_;
  std::map<Key, int> index_;
};

void set_ways(StageSetting& setting, const WayCost& in, const WayCost& out, const std::array<ReduceLine, 2>& reduce) {
  setting.in_ms_per_byte = in.ms_per_byte;
  setting.in_latency_ms = in.latency_ms;
  setting.out_ms_per_byte = out.ms_per_byte;
  setting.out_latency_ms = out.latency_ms;
  setting.reduce = reduce;
}

WayCost any_way(const Cluster& cluster) {
  if (cluster.num_devices() == 1) return {};
  const Path path = path_between(cluster, 0, cluster.num_devices() - 1);
  return {1000 / path.bandwidth, path.latency_ms};
}

std::array<ReduceLine, 2> uniform_ring(const WayCost& way, int d) {
  const ReduceLine line{2.0 * (d - 1) / d * way.ms_per_byte, 2.0 * (d - 1) * way.latency_ms};
  return {line, line};
}

DeviceLayout uniform_layout(const Cluster& cluster, const DeviceKinds& kinds, bool straight) {
  DeviceLayout layout;
  layout.name = "uniform";
  layout.form = DeviceLayout::Form::Uniform;
  const int n = cluster.num_devices();
  const WayCost way = any_way(cluster);
  for (int d = 1; d <= (straight ? 1 : n); ++d) {
    StageSetting setting;
    setting.replicas = d;
    setting.kinds = {0};
    set_ways(setting, way, way, uniform_ring(way, d));
    layout.settings.push_back(setting);
  }
  layout.labels = n + 1;
  // Above this the search for uniform devices works without the list of takes.
  constexpr int kMostListed = 2048;
  layout.takes_.resize(static_cast<std::size_t>(n) + 1);
  for (int label = 0; label <= n; ++label) {
    layout.used.push_back(label);
    layout.capacity.push_back((n - label) * kinds.kinds[0].rate);
    for (int d = 1; n <= kMostListed && d <= (straight ? std::min(1, n - label) : n - label); ++d)
      layout.takes_[static_cast<std::size_t>(label)].push_back({label + d, d - 1});
  }
  return layout;
}

std::vector<int> kinds_in(const DeviceKinds& kinds, const std::vector<int>& devices) {
  std::vector<int> found;
  for (const int device : devices) found.push_back(kinds.of_device[static_cast<std::size_t>(device)]);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Over the first n places of an order.
DeviceLayout consecutive_layout(int n, const DeviceKinds& given, const Network& network, bool straight, const std::vector<int>& order) {
  DeviceLayout layout;
  layout.order = order;
  DeviceKinds kinds = given;
  for (std::size_t place = 0; place < order.size(); ++place) kinds.of_device[place] = given.of_device[static_cast<std::size_t>(order[place])];
  layout.name = "consecutive";
  layout.form = DeviceLayout::Form::Consecutive;
  layout.labels = n + 1;
  layout.takes_.resize(static_cast<std::size_t>(n) + 1);
  SettingTable table(layout.settings);
  double left = 0;
  for (int device = 0; device < n; ++device) left += kinds.kinds[static_cast<std::size_t>(kinds.of_device[static_cast<std::size_t>(device)])].rate;
  for (int label = 0; label <= n; ++label) {
    layout.used.push_back(label);
    layout.capacity.push_back(left);
    const int last = n - label - 1;
    if (last >= 0) left -= kinds.kinds[static_cast<std::size_t>(kinds.of_device[static_cast<std::size_t>(last)])].rate;
    StageSetting setting;
    for (int first = last; first >= (straight ? std::max(last, 0) : 0); --first) {
      setting.replicas = last - first + 1;
      const int kind = kinds.of_device[static_cast<std::size_t>(first)];
      if (const auto at = std::lower_bound(setting.kinds.begin(), setting.kinds.end(), kind); at == setting.kinds.end() || *at != kind)
        setting.kinds.insert(at, kind);
      set_ways(setting, first > 0 ? network.way(first, last, first - 1) : WayCost{}, last + 1 < n ? network.way(first, last, last + 1) : WayCost{},
               network.reduce(first, last));
      layout.takes_[static_cast<std::size_t>(label)].push_back({label + setting.replicas, table.index_of(setting)});
    }
  }
  return layout;
}

DeviceLayout strided_layout(const Cluster& cluster, const DeviceKinds& kinds, int group) {
  DeviceLayout layout;
  layout.name = fmt::format("strided by {}", group);
  layout.form = DeviceLayout::Form::Strided;
  layout.group = group;
  layout.groups = cluster.num_devices() / group;
  layout.labels = group + 1;
  layout.takes_.resize(static_cast<std::size_t>(group) + 1);
  SettingTable table(layout.settings);
  const auto in_all_groups = [&](int first, int last) {
    std::vector<int> devices;
    for (int g = 0; g < layout.groups; ++g)
      for (int x = first; x <= last; ++x) devices.push_back(g * group + x);
    return devices;
  };
  for (int label = 0; label <= group; ++label) {
    layout.used.push_back(label * layout.groups);
    layout.capacity.push_back((group - label) * layout.groups * kinds.kinds[0].rate);
    const int last = group - label - 1;
    for (int first = last; first >= 0; --first) {
      const std::vector<int> before = first > 0 ? in_all_groups(first - 1, first - 1) : std::vector<int>{};
      const std::vector<int> after = last + 1 < group ? in_all_groups(last + 1, last + 1) : std::vector<int>{};
      layout.takes_[static_cast<std::size_t>(label)].push_back(
          {label + last - first + 1, table.index_of(setting_of(cluster, kinds, in_all_groups(first, last), before, after))});
    }
  }
  return layout;
}

DeviceLayout counted_layout(const Cluster& cluster, const DeviceKinds& kinds, bool straight) {
  DeviceLayout layout;
  layout.name = "counted";
  layout.form = DeviceLayout::Form::Counted;
  const auto c = kinds.kinds.size();
  layout.devices_of_kind.resize(c);
  for (int device = 0; device < cluster.num_devices(); ++device)
    layout.devices_of_kind[static_cast<std::size_t>(kinds.of_device[static_cast<std::size_t>(device)])].push_back(device);
  layout.labels = 1;
  for (const auto& devices : layout.devices_of_kind) {
    layout.strides.push_back(layout.labels);
    layout.labels *= static_cast<int>(devices.size()) + 1;
  }
  layout.prefix.assign(static_cast<std::size_t>(layout.labels), false);
  int prefix_label = 0;
  for (const int kind : kinds.of_device)
    layout.prefix[static_cast<std::size_t>(prefix_label += layout.strides[static_cast<std::size_t>(kind)])] = true;
  const WayCost way = any_way(cluster);
  SettingTable table(layout.settings);
  const auto counts_of = [&](int label) {
    std::vector<int> counts(c);
    for (std::size_t k = 0; k < c; ++k) counts[k] = label / layout.strides[k] % (static_cast<int>(layout.devices_of_kind[k].size()) + 1);
    return counts;
  };
  // The difference of two labels is a take if no count goes down; the setting depends on the difference alone.
  std::vector<int> setting_of_difference(static_cast<std::size_t>(layout.labels), -1), taken(static_cast<std::size_t>(layout.labels), 0);
  std::vector<std::vector<int>> counts;
  for (int label = 0; label < layout.labels; ++label) {
    counts.push_back(counts_of(label));
    StageSetting setting;
    setting.replicas = 0;
    double used_rate = 0;
    for (std::size_t k = 0; k < c; ++k) {
      setting.replicas += counts.back()[k];
      if (counts.back()[k] > 0) used_rate += counts.back()[k] * kinds.kinds[k].rate;
      if (counts.back()[k] > 0) setting.kinds.push_back(static_cast<int>(k));
    }
    layout.used.push_back(setting.replicas);
    layout.capacity.push_back(-used_rate);
    taken[static_cast<std::size_t>(label)] = setting.replicas;
    if (label == 0 || (straight && setting.replicas > 1)) continue;
    set_ways(setting, way, way, uniform_ring(way, setting.replicas));
    setting_of_difference[static_cast<std::size_t>(label)] = table.index_of(setting);
  }
  const double all = -layout.capacity.back();
  for (double& capacity : layout.capacity) capacity = std::isfinite(all) ? capacity + all : all;
  layout.takes_.resize(static_cast<std::size_t>(layout.labels));
  for (int label = 0; label < layout.labels; ++label) {
    auto& takes = layout.takes_[static_cast<std::size_t>(label)];
    for (int next = label + 1; next < layout.labels; ++next) {
      bool fits = setting_of_difference[static_cast<std::size_t>(next - label)] >= 0;
      for (std::size_t k = 0; k < c && fits; ++k) fits = counts[static_cast<std::size_t>(next)][k] >= counts[static_cast<std::size_t>(label)][k];
      if (fits) takes.push_back({next, setting_of_difference[static_cast<std::size_t>(next - label)]});
    }
    std::stable_sort(takes.begin(), takes.end(), [&](const Take& a, const Take& b) {
      return taken[static_cast<std::size_t>(a.next - label)] < taken[static_cast<std::size_t>(b.next - label)];
    });
  }
  return layout;
}

}  // namespace

std::vector<std::vector<int>> DeviceLayout::devices(const std::vector<std::pair<int, Take>>& path) const {
  std::vector<std::vector<int>> stages;  // last stage first
  const int total = path.empty() ? 0 : used[static_cast<std::size_t>(path.back().second.next)];
  for (const auto& [label, take] : path) {
    std::vector<int> devices;
    if (form == Form::Counted) {
      for (std::size_t k = 0; k < strides.size(); ++k) {
        const int radix = static_cast<int>(devices_of_kind[k].size()) + 1;
        const int all = path.back().second.next / strides[k] % radix, begin = label / strides[k] % radix, end = take.next / strides[k] % radix;
        for (int i = begin; i < end; ++i) devices.push_back(devices_of_kind[k][static_cast<std::size_t>(all - 1 - i)]);
      }
      std::sort(devices.begin(), devices.end());
    } else if (form == Form::Strided) {
      const int inside = total / groups;  // groups may be used in part only when devices stay idle
      for (int x = inside - take.next; x < inside - label; ++x)
        for (int g = 0; g < groups; ++g) devices.push_back(g * group + x);
    } else {
      for (int x = total - take.next; x < total - label; ++x) devices.push_back(order.empty() ? x : order[static_cast<std::size_t>(x)]);
      std::sort(devices.begin(), devices.end());
    }
    stages.push_back(std::move(devices));
  }
  std::reverse(stages.begin(), stages.end());
  return stages;
}

DeviceKinds device_kinds(const Cluster& cluster, const std::vector<int>& times) {
  DeviceKinds result;
  for (int device = 0; device < cluster.num_devices(); ++device) {
    const Device& d = cluster.devices[static_cast<std::size_t>(device)];
    const DeviceKind kind{d.speed, d.memory_bytes, times[static_cast<std::size_t>(device)], d.speed};
    auto at = std::find(result.kinds.begin(), result.kinds.end(), kind);
    if (at == result.kinds.end()) at = result.kinds.insert(at, kind);
    result.of_device.push_back(static_cast<int>(at - result.kinds.begin()));
  }
  return result;
}

std::vector<DeviceLayout> device_layouts(const Cluster& cluster, const DeviceKinds& kinds, bool straight, bool fewer, int stages) {
  const Network network(cluster);
  constexpr std::int64_t kMostLabels = 20'000;  // takes of counted layouts grow with the square
  if (network.is_uniform()) {
    if (kinds.kinds.size() == 1) return {uniform_layout(cluster, kinds, straight)};
    std::int64_t labels = 1;
    for (std::size_t k = 0; k < kinds.kinds.size() && labels <= kMostLabels; ++k)
      labels *= 1 + std::count(kinds.of_device.begin(), kinds.of_device.end(), static_cast<int>(k));
    if (labels <= kMostLabels) return {counted_layout(cluster, kinds, straight)};
  }
  const int n = cluster.num_devices();
  const int most = straight && fewer ? std::min(n, stages) : n;
  constexpr int kEveryNumber = 32, kMostOrders = 24;
  const int step = n <= kEveryNumber || network.num_levels() == 0 ? 1 : network.group_size(0);
  const DeviceOrders orders = kinds.kinds.size() == 1 ? DeviceOrders{{{}}, true} : device_orders(cluster, kinds.of_device, kMostOrders);
  std::vector<DeviceLayout> layouts;
  for (const auto& order : orders.orders) {
    const auto add = [&](int used) {
      // Ranks are the devices from 0 on: where some stay idle, it is the last ones of the file.
      const auto end = order.begin() + std::min<std::ptrdiff_t>(used, static_cast<std::ptrdiff_t>(order.size()));
      if (std::any_of(order.begin(), end, [used](int device) { return device >= used; })) return;
      layouts.push_back(consecutive_layout(used, kinds, network, straight, order));
      layouts.back().is_sample = !orders.all;
    };
    add(most);
    for (int used = (most - 1) / step * step; fewer && used > 0; used -= step) add(used);
  }
  if (kinds.kinds.size() > 1 || straight || !cluster.links.empty()) return layouts;
  for (int level = 0; level + 1 < network.num_levels(); ++level)
    if (network.group_size(level) > 1 && network.group_size(level) < cluster.num_devices())
      layouts.push_back(strided_layout(cluster, kinds, network.group_size(level)));
  return layouts;
}

StageSetting setting_of(const Cluster& cluster, const DeviceKinds& kinds, std::vector<int> devices, std::vector<int> before, std::vector<int> after) {
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  const Network network(cluster);
  StageSetting setting;
  setting.replicas = static_cast<int>(devices.size());
  setting.kinds = kinds_in(kinds, devices);
  std::sort(devices.begin(), devices.end());
  if (network.is_uniform()) {
    const WayCost way = any_way(cluster);
    set_ways(setting, before.empty() ? WayCost{} : way, after.empty() ? WayCost{} : way, uniform_ring(way, setting.replicas));
  } else {
    set_ways(setting, network.way(devices, before), network.way(devices, after), network.reduce(devices));
  }
  return setting;
}

}  // namespace pipedream
