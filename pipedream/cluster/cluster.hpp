#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace pipedream {

/// One device that can hold one rank.
struct Device {
  std::string type = "device";
  std::int64_t memory_bytes = 0;  ///< 0: not limited
  double speed = 1;               ///< times of the profile are divided by it
  std::string profile;            ///< file of an own profile of this type; empty: the common profile and `speed`
  bool operator==(const Device&) const = default;
};

/// One level of the hierarchy of links, lowest first: devices in a machine, machines in a rack, ...
struct Level {
  int size = 1;          ///< members per group: devices at level 0, groups of the level below elsewhere
  double bandwidth = 0;  ///< bytes per second of one link, each direction
  double latency_ms = 0;
  bool shared = false;  ///< the level's links share this bandwidth (a bus, one network card)
  bool operator==(const Level&) const = default;
};

/// One directed link of a full matrix.
struct Link {
  int from = 0, to = 0;
  double bandwidth = 0;  ///< bytes per second
  double latency_ms = 0;
  bool operator==(const Link&) const = default;
};

/// The devices of a run and what connects them: either levels or a matrix of links. File form: TOML (docs/file_formats.md).
struct Cluster {
  std::vector<Device> devices;
  std::vector<Level> levels;  ///< the product of sizes equals the number of devices
  std::vector<Link> links;    ///< if not empty it is complete and `levels` is empty

  [[nodiscard]] int num_devices() const { return static_cast<int>(devices.size()); }
  bool operator==(const Cluster&) const = default;
};

/// Bandwidth (bytes/s) and latency of the way from one device to another; of a device to itself: infinite and 0.
/// With levels it is the lowest level whose group holds both.
struct Path {
  double bandwidth = 0;
  double latency_ms = 0;
  int level = -1;  ///< index of the level that decides; -1 for a device to itself and for a matrix
};
[[nodiscard]] Path path_between(const Cluster& cluster, int from, int to);

/// Equal devices: counts, bandwidths (bytes/s) and latencies per level, lowest first; a single bandwidth or latency serves all levels.
/// @throws UsageError if the numbers of entries do not match or a count is below 1
[[nodiscard]] Cluster make_cluster(const std::vector<int>& counts, const std::vector<double>& bandwidths, const std::vector<double>& latencies_ms,
                                   std::int64_t memory_bytes);

void validate(const Cluster& cluster, const std::string& place);
[[nodiscard]] std::string fingerprint(const Cluster& cluster);
std::ostream& operator<<(std::ostream& out, const Cluster& cluster);

/// TOML text of a cluster and back. @throws InputError with file, line and remedy
[[nodiscard]] std::string cluster_to_toml(const Cluster& cluster);
[[nodiscard]] Cluster cluster_from_toml(const std::string& text, const std::string& file);
[[nodiscard]] Cluster load_cluster(const std::string& file);

}  // namespace pipedream
