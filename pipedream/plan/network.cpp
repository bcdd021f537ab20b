#include "pipedream/plan/network.hpp"

#include <algorithm>
#include <cstdlib>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr double kMsPerSecond = 1000;

WayCost slower(const WayCost& a, const WayCost& b) { return {std::max(a.ms_per_byte, b.ms_per_byte), std::max(a.latency_ms, b.latency_ms)}; }

// 2 (d - 1) / d of the bytes pass every link in 2 (d - 1) messages.
ReduceLine ring_of(int d, const WayCost& link) { return {2.0 * (d - 1) / d * link.ms_per_byte, 2.0 * (d - 1) * link.latency_ms}; }

}  // namespace

Network::Network(const Cluster& cluster) : levels_(cluster.levels), devices_(cluster.num_devices()) {
  int group = 1;
  for (const Level& level : levels_) groups_.push_back(group *= level.size);
  if (!cluster.links.empty()) {
    const auto n = static_cast<std::size_t>(devices_);
    matrix_.resize(n * n);
    for (const Link& link : cluster.links)
      matrix_[static_cast<std::size_t>(link.from) * n + static_cast<std::size_t>(link.to)] = {kMsPerSecond / link.bandwidth, link.latency_ms};
    for (const Link& link : cluster.links)
      uniform_ = uniform_ && link.bandwidth == cluster.links.front().bandwidth && link.latency_ms == cluster.links.front().latency_ms;
    return;
  }
  const Level* seen = nullptr;
  for (const Level& level : levels_) {
    if (level.size == 1) continue;
    if (level.shared || (seen != nullptr && (seen->bandwidth != level.bandwidth || seen->latency_ms != level.latency_ms))) uniform_ = false;
    seen = &level;
  }
}

int Network::level_between(int a, int b) const {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (a / groups_[i] == b / groups_[i]) return static_cast<int>(i);
  throw InternalError("devices without a common level");
}

WayCost Network::link(int level) const {
  const Level& l = levels_[static_cast<std::size_t>(level)];
  return {kMsPerSecond / l.bandwidth, l.latency_ms};
}

WayCost Network::matrix_way(int from, int to) const {
  const auto n = static_cast<std::size_t>(devices_);
  return slower(matrix_[static_cast<std::size_t>(from) * n + static_cast<std::size_t>(to)],
                matrix_[static_cast<std::size_t>(to) * n + static_cast<std::size_t>(from)]);
}

WayCost Network::direct(int from, int to) const { return matrix_.empty() ? link(level_between(from, to)) : matrix_way(from, to); }

WayCost Network::way(int first, int last, int other) const {
  WayCost worst;
  if (!matrix_.empty()) {
    for (int device = first; device <= last; ++device) worst = slower(worst, matrix_way(device, other));
    return worst;
  }
  // The devices nearer to `other` use lower levels; each level's link is shared by those of the run that lie in one group below it.
  const int near = other < first ? first : last, far = other < first ? last : first;
  for (int level = level_between(near, other); level <= level_between(far, other); ++level) {
    const Level& l = levels_[static_cast<std::size_t>(level)];
    WayCost cost = link(level);
    if (l.shared) {
      const int below = level == 0 ? groups_[0] : groups_[static_cast<std::size_t>(level - 1)];
      int most = 0;
      for (int group = first / below; group <= last / below; ++group)
        most = std::max(most, std::min(last, (group + 1) * below - 1) - std::max(first, group * below) + 1);
      cost.ms_per_byte *= most;
    }
    worst = slower(worst, cost);
  }
  return worst;
}

ReduceLine Network::ring(int first, int last) const {
  const int d = last - first + 1;
  if (!matrix_.empty()) {
    WayCost worst = matrix_way(first, last);
    for (int device = first; device < last; ++device) worst = slower(worst, matrix_way(device, device + 1));
    return ring_of(d, worst);
  }
  WayCost worst;
  for (int level = 0; level <= level_between(first, last); ++level) {
    // A run crosses a level inside it if two neighbours meet there: the lowest does unless every group holds one device of the run.
    const int below = level == 0 ? 1 : groups_[static_cast<std::size_t>(level - 1)], size = groups_[static_cast<std::size_t>(level)];
    bool crossed = false;
    for (int border = (first / below + 1) * below; border <= last && !crossed; border += below) crossed = border % size != 0;
    if (!crossed) continue;
    WayCost cost = link(level);
    if (levels_[static_cast<std::size_t>(level)].shared && level == 0) cost.ms_per_byte *= std::min(d, groups_[0]);  // all links of a bus at once
    worst = slower(worst, cost);
  }
  return ring_of(d, worst);
}

ReduceLine Network::across(int level, int parts, int part_size, const ReduceLine& inside) const {
  WayCost cost = link(level);
  // part_size rings run side by side, each with its share of the bytes; on a shared link they queue, on a bus all parts queue.
  double share = 1.0 / part_size;
  if (levels_[static_cast<std::size_t>(level)].shared) share = level == 0 ? parts : 1;
  cost.ms_per_byte *= share;
  const ReduceLine ring = ring_of(parts, cost);
  return {inside.ms_per_byte + ring.ms_per_byte, inside.latency_ms + ring.latency_ms};
}

ReduceLine Network::tree(int first, int last) const {
  if (first == last) return {};
  const int level = level_between(first, last);
  const int below = level == 0 ? 1 : groups_[static_cast<std::size_t>(level - 1)];
  const int first_group = first / below, last_group = last / below, parts = last_group - first_group + 1;
  const int head = (first_group + 1) * below - first, tail = last - last_group * below + 1;
  if (head != tail || (parts > 2 && head != below)) return ring(first, last);  // uneven groups: no such algorithm
  const ReduceLine a = tree(first, first + head - 1), b = tree(last - tail + 1, last);
  return across(level, parts, head, {std::max(a.ms_per_byte, b.ms_per_byte), std::max(a.latency_ms, b.latency_ms)});
}

std::array<ReduceLine, 2> Network::reduce(int first, int last) const {
  if (first == last) return {};
  const ReduceLine one = ring(first, last);
  return {one, matrix_.empty() ? tree(first, last) : one};
}

int Network::nearest(int device, const std::vector<int>& others) const {
  // Groups of a level are runs: nobody shares a lower level with the device than the next ones on either side do.
  const auto after = std::lower_bound(others.begin(), others.end(), device);
  if (after == others.begin()) return *after;
  const int before = *(after - 1);
  if (after == others.end()) return before;
  const bool is_before = matrix_.empty() ? level_between(device, before) <= level_between(device, *after) : device - before <= *after - device;
  return is_before ? before : *after;
}

WayCost Network::way(const std::vector<int>& devices, const std::vector<int>& others) const {
  WayCost worst;
  if (others.empty()) return worst;
  for (const int device : devices) {
    const int best = nearest(device, others);
    WayCost best_cost = direct(device, best);
    if (const int level = matrix_.empty() ? level_between(device, best) : -1; level >= 0 && levels_[static_cast<std::size_t>(level)].shared) {
      const int below = level == 0 ? groups_[0] : groups_[static_cast<std::size_t>(level - 1)];
      int most = 0;
      for (const int one : devices)
        most =
            std::max<int>(most, static_cast<int>(std::count_if(devices.begin(), devices.end(), [&](int two) { return two / below == one / below; })));
      best_cost.ms_per_byte *= most;
    }
    worst = slower(worst, best_cost);
  }
  return worst;
}

ReduceLine Network::tree(const int* begin, const int* end, int level) const {
  if (end - begin == 1) return {};
  while (level > 0 && *begin / groups_[static_cast<std::size_t>(level - 1)] == *(end - 1) / groups_[static_cast<std::size_t>(level - 1)]) --level;
  const int below = level == 0 ? 1 : groups_[static_cast<std::size_t>(level - 1)];
  ReduceLine inside;
  int parts = 0;
  std::ptrdiff_t size = 0;
  for (const int* at = begin; at != end;) {
    const int* next = std::find_if(at, end, [&](int device) { return device / below != *at / below; });
    if (parts > 0 && next - at != size) return {-1, 0};
    size = next - at;
    const ReduceLine part = level == 0 ? ReduceLine{} : tree(at, next, level - 1);
    if (part.ms_per_byte < 0) return part;
    inside = {std::max(inside.ms_per_byte, part.ms_per_byte), std::max(inside.latency_ms, part.latency_ms)};
    ++parts;
    at = next;
  }
  return across(level, parts, static_cast<int>(size), inside);
}

std::array<ReduceLine, 2> Network::reduce(const std::vector<int>& devices) const {
  const int d = static_cast<int>(devices.size());
  if (d == 1) return {};
  WayCost worst;
  for (int i = 0; i < d; ++i) {
    const int a = devices[static_cast<std::size_t>(i)], b = devices[static_cast<std::size_t>((i + 1) % d)];
    WayCost cost = direct(a, b);
    if (matrix_.empty() && level_between(a, b) == 0 && levels_[0].shared) {
      const auto mates = std::count_if(devices.begin(), devices.end(), [&](int c) { return c / groups_[0] == a / groups_[0]; });
      cost.ms_per_byte *= static_cast<double>(mates);
    }
    worst = slower(worst, cost);
  }
  const ReduceLine ring = ring_of(d, worst);
  if (!matrix_.empty()) return {ring, ring};
  const ReduceLine other = tree(devices.data(), devices.data() + d, num_levels() - 1);
  return {ring, other.ms_per_byte < 0 ? ring : other};
}

}  // namespace pipedream
