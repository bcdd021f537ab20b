#include "pipedream/sim/links.hpp"

#include <algorithm>
#include <map>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr double kMsPerSecond = 1000;

// Number of the group of a level that a device belongs to.
int group_of(const Cluster& cluster, int level, int device) {
  int size = 1;
  for (int i = 0; i <= level; ++i) size *= cluster.levels[static_cast<std::size_t>(i)].size;
  return device / size;
}

}  // namespace

Links::Links(const LinkModel& model, int ranks) : ranks_(static_cast<std::size_t>(ranks)), links_(ranks_ * ranks_) {
  if (model.cluster && model.cluster->num_devices() < ranks)
    throw UsageError(fmt::format("the schedule has {} ranks, the cluster {} devices", ranks, model.cluster->num_devices()));
  std::map<std::pair<int, int>, int> shared;  // (level, group) -> queue
  int queues = 0;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      Link& link = links_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
      link.queue = queues++;
      if (!model.cluster) {
        link.latency_ms = model.latency_ms;
        link.ms_per_byte = model.bandwidth > 0 ? kMsPerSecond / model.bandwidth : 0;
      } else if (from != to) {
        const Path path = path_between(*model.cluster, from, to);
        link.latency_ms = path.latency_ms;
        link.ms_per_byte = path.bandwidth > 0 ? kMsPerSecond / path.bandwidth : 0;
        if (path.level >= 0 && model.cluster->levels[static_cast<std::size_t>(path.level)].shared)
          link.queue = shared.try_emplace({path.level, group_of(*model.cluster, path.level, from)}, link.queue).first->second;
      }
    }
  free_ms_.assign(static_cast<std::size_t>(queues), 0);
}

Links::Booking Links::send(int from, int to, double bytes, double now_ms) {
  Link& link = links_[static_cast<std::size_t>(from) * ranks_ + static_cast<std::size_t>(to)];
  double& free = free_ms_[static_cast<std::size_t>(link.queue)];
  const double start = std::max(now_ms, free), occupied = bytes * link.ms_per_byte;
  free = start + occupied;
  link.bytes += bytes;
  link.busy_ms += occupied;
  ++link.messages;
  return {start, start + occupied + link.latency_ms};
}

double Links::reduce_ms(const std::vector<int>& ranks, double bytes) const {
  const auto count = static_cast<double>(ranks.size());
  if (ranks.size() < 2) return 0;
  double latency = 0, ms_per_byte = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Link& next = link(ranks[i], ranks[(i + 1) % ranks.size()]);
    latency = std::max(latency, next.latency_ms);
    ms_per_byte = std::max(ms_per_byte, next.ms_per_byte);
  }
  return 2 * (count - 1) * (latency + bytes / count * ms_per_byte);
}

std::vector<LinkFigures> Links::figures() const {
  std::vector<LinkFigures> result;
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i].messages > 0)
      result.push_back({static_cast<int>(i / ranks_), static_cast<int>(i % ranks_), links_[i].messages, links_[i].bytes, links_[i].busy_ms});
  return result;
}

}  // namespace pipedream
