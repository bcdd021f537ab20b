#include "pipedream/cluster/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <vector>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

constexpr double kSlowest = 1e-6;  // a factor of a million either way is a wrong unit

constexpr int kMostDevices = 1'000'000;
constexpr std::int64_t kMostMemory = 1'000'000'000'000'000'000;

void check_device(const Device& device, std::size_t index, const std::string& place) {
  if (device.memory_bytes < 0)
    throw InputError(place, fmt::format("device {}: memory is negative: {}", index, device.memory_bytes), "give bytes, or 0 for no limit");
  if (device.memory_bytes > kMostMemory)
    throw InputError(place, fmt::format("device {}: memory is {} bytes, more than an exabyte", index, device.memory_bytes), "check the unit");
  if (!(device.speed > 0) || !std::isfinite(device.speed))
    throw InputError(place, fmt::format("device {}: speed is {}, it must be above 0", index, device.speed),
                     "1 is the speed the profile was measured at");
  if (device.speed < kSlowest || device.speed > 1 / kSlowest)
    throw InputError(place, fmt::format("device {}: speed is {}, it must lie between {} and {}", index, device.speed, kSlowest, 1 / kSlowest),
                     "1 is the speed the profile was measured at");
}

void check_link(double bandwidth, double latency_ms, const std::string& what, const std::string& place) {
  if (!(bandwidth > 0))
    throw InputError(place, fmt::format("{}: bandwidth is {}, it must be above 0", what, bandwidth), "write it like \"10Gbit/s\", or \"inf\"");
  if (bandwidth < 1)
    throw InputError(place, fmt::format("{}: bandwidth is {} bytes per second, at least 1 is expected", what, bandwidth),
                     "write it like \"10Gbit/s\"");
  if (!(latency_ms >= 0) || !std::isfinite(latency_ms))
    throw InputError(place, fmt::format("{}: latency is {} ms, it must be 0 or more", what, latency_ms), "write it like \"50us\"");
}

void check_levels(const Cluster& cluster, const std::string& place) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    const Level& level = cluster.levels[i];
    if (level.size < 1)
      throw InputError(place, fmt::format("level {}: size is {}, it must be 1 or more", i, level.size), "give the members of one group");
    check_link(level.bandwidth, level.latency_ms, fmt::format("level {}", i), place);
    product = std::min<std::int64_t>(product * level.size, 2 * static_cast<std::int64_t>(kMostDevices));
  }
  if (product == cluster.num_devices()) return;
  if (cluster.levels.empty())
    throw InputError(place, fmt::format("{} devices, but nothing says what connects them", cluster.num_devices()), "add [[levels]] or [[links]]");
  throw InputError(place, fmt::format("the sizes of the levels make {} devices, but there are {}", product, cluster.num_devices()),
                   "the product of the sizes must be the number of devices");
}

void check_matrix(const Cluster& cluster, const std::string& place) {
  const int n = cluster.num_devices();
  std::vector<char> seen(static_cast<std::size_t>(n) * static_cast<std::size_t>(n), 0);
  for (const Link& link : cluster.links) {
    const std::string what = fmt::format("link {} -> {}", link.from, link.to);
    if (link.from < 0 || link.from >= n || link.to < 0 || link.to >= n)
      throw InputError(place, fmt::format("{}: devices go from 0 to {}", what, n - 1), "name devices that exist");
    if (link.from == link.to) throw InputError(place, fmt::format("{}: a device needs no link to itself", what), "remove it");
    check_link(link.bandwidth, link.latency_ms, what, place);
    char& mark = seen[static_cast<std::size_t>(link.from) * static_cast<std::size_t>(n) + static_cast<std::size_t>(link.to)];
    if (mark != 0) throw InputError(place, fmt::format("{} is there twice", what), "remove one");
    mark = 1;
  }
  for (int from = 0; from < n; ++from)
    for (int to = 0; to < n; ++to)
      if (from != to && seen[static_cast<std::size_t>(from) * static_cast<std::size_t>(n) + static_cast<std::size_t>(to)] == 0)
        throw InputError(place, fmt::format("the link {} -> {} is missing", from, to),
                         "give a link for every pair of devices, both ways, or use [[levels]]");
}

template <typename T>
T entry_of(const std::vector<T>& values, std::size_t level) {
  return values[values.size() == 1 ? 0 : level];
}

std::string describe_link(double bandwidth, double latency_ms, bool shared) {
  std::string text = std::isinf(bandwidth) ? "unlimited bandwidth" : format_bandwidth(bandwidth);
  if (latency_ms > 0) text += fmt::format(" and {} latency", format_ms(latency_ms));
  return text + (shared ? ", shared" : "");
}

std::string describe_levels(const Cluster& cluster) {
  std::string text;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    const Level& level = cluster.levels[i];
    const std::string link = describe_link(level.bandwidth, level.latency_ms, level.shared);
    if (cluster.levels.size() == 1) text += fmt::format("; links of {}", link);
    else if (i == 0) text += fmt::format("; groups of {} with links of {}", level.size, link);
    else text += fmt::format(", {} {} with links of {}", level.size, i == 1 ? "groups" : "of these", link);
  }
  return text;
}

std::string describe_device(const Device& device) {
  std::string text;
  if (device.memory_bytes > 0) text += fmt::format(" of {}", format_bytes(static_cast<double>(device.memory_bytes)));
  if (device.speed != 1) text += fmt::format(" at speed {}", device.speed);
  return text;
}

// Devices that are all alike and have no name of their own need no list.
std::string describe_devices(const Cluster& cluster) {
  const Device& first = cluster.devices.front();
  const bool alike = std::all_of(cluster.devices.begin(), cluster.devices.end(), [&](const Device& device) { return device == first; });
  if (alike && first.type == "device") return describe_device(first);
  std::string text;
  for (std::size_t i = 0; i < cluster.devices.size();) {
    std::size_t end = i;
    while (end < cluster.devices.size() && cluster.devices[end] == cluster.devices[i]) ++end;
    text += fmt::format("{}{} x {}{}", text.empty() ? "" : ", ", end - i, cluster.devices[i].type, describe_device(cluster.devices[i]));
    i = end;
  }
  return " (" + text + ")";
}

}  // namespace

Path path_between(const Cluster& cluster, int from, int to) {
  PD_CHECK(from >= 0 && from < cluster.num_devices() && to >= 0 && to < cluster.num_devices(), "devices {} and {} of {}", from, to,
           cluster.num_devices());
  if (from == to) return {std::numeric_limits<double>::infinity(), 0, -1};
  if (!cluster.links.empty()) {
    for (const Link& link : cluster.links)
      if (link.from == from && link.to == to) return {link.bandwidth, link.latency_ms, -1};
    throw InternalError(fmt::format("the link {} -> {} is missing", from, to));
  }
  std::int64_t group = 1;
  for (std::size_t i = 0; i < cluster.levels.size(); ++i) {
    group *= cluster.levels[i].size;
    if (from / group == to / group) return {cluster.levels[i].bandwidth, cluster.levels[i].latency_ms, static_cast<int>(i)};
  }
  throw InternalError(fmt::format("no level holds both device {} and device {}", from, to));
}

Cluster make_cluster(const std::vector<int>& counts, const std::vector<double>& bandwidths, const std::vector<double>& latencies_ms,
                     std::int64_t memory_bytes) {
  if (counts.empty()) throw UsageError("no number of devices is given", "write it like 4, or 4,4 for two levels");
  const auto matches = [&](std::size_t n) { return n == 1 || n == counts.size(); };
  if (!matches(bandwidths.size()))
    throw UsageError(fmt::format("{} bandwidths for {} level{} of devices", bandwidths.size(), counts.size(), counts.size() == 1 ? "" : "s"),
                     "give one bandwidth, or one per level, lowest first");
  if (!latencies_ms.empty() && !matches(latencies_ms.size()))
    throw UsageError(fmt::format("{} latencies for {} level{} of devices", latencies_ms.size(), counts.size(), counts.size() == 1 ? "" : "s"),
                     "give one latency, or one per level, lowest first");
  if (memory_bytes < 0) throw UsageError(fmt::format("the memory is negative: {}", memory_bytes), "give bytes, or 0 for no limit");
  Cluster cluster;
  std::int64_t devices = 1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1)
      throw UsageError(fmt::format("{} devices{}: at least 1 is needed", counts[i],
                                   counts.size() == 1 ? "" : fmt::format(" on level {} of {}", i + 1, counts.size())),
                       "write it like 4, or 4,4 for two levels");
    if (!(entry_of(bandwidths, i) > 0))
      throw UsageError(fmt::format("the bandwidth {} of level {} is not above 0", entry_of(bandwidths, i), i), "write it like 10Gbit/s");
    devices *= counts[i];
    if (devices > kMostDevices) throw UsageError(fmt::format("more than {} devices", format_count(kMostDevices)), "plan for fewer");
    cluster.levels.push_back({counts[i], entry_of(bandwidths, i), latencies_ms.empty() ? 0 : entry_of(latencies_ms, i), false});
  }
  Device device;
  device.memory_bytes = memory_bytes;
  cluster.devices.assign(static_cast<std::size_t>(devices), device);
  validate(cluster, "cluster");
  return cluster;
}

void validate(const Cluster& cluster, const std::string& place) {
  if (cluster.devices.empty()) throw InputError(place, "the cluster has no devices", "add [[devices]]");
  if (cluster.devices.size() > kMostDevices)
    throw InputError(place, fmt::format("more than {} devices", format_count(kMostDevices)), "plan for fewer");
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) check_device(cluster.devices[i], i, place);
  if (cluster.links.empty()) {
    check_levels(cluster, place);
  } else {
    if (!cluster.levels.empty()) throw InputError(place, "both levels and links are given", "describe the network by [[levels]] or by [[links]]");
    check_matrix(cluster, place);
  }
}

std::string fingerprint(const Cluster& cluster) { return fmt::format("{:016x}", key_of(cluster_to_toml(cluster))); }

std::ostream& operator<<(std::ostream& out, const Cluster& cluster) {
  out << fmt::format("{} device{}{}", cluster.num_devices(), cluster.num_devices() == 1 ? "" : "s",
                     cluster.devices.empty() ? "" : describe_devices(cluster));
  if (cluster.num_devices() <= 1) return out;
  return out << (cluster.links.empty() ? describe_levels(cluster) : fmt::format("; {} links", cluster.links.size()));
}

}  // namespace pipedream
