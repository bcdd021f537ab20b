#include "tests/plan/brute_force.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

namespace pipedream {
namespace {

bool holds(std::uint32_t set, int layer) { return (set >> layer & 1U) != 0; }

double both(double a, double b, double overlap) { return std::max(a, b) + (1 - overlap) * std::min(a, b); }

// Tensors made in `from` and read in `to`, each once.
double bytes_between(const std::vector<BruteForce::Tensor>& tensors, std::uint32_t from, std::uint32_t to) {
  double bytes = 0;
  for (const BruteForce::Tensor& tensor : tensors)
    if (holds(from, tensor.source) && (to & tensor.readers) != 0) bytes += tensor.bytes;
  return bytes;
}

double ms(double bytes, double bandwidth, double latency) { return bytes > 0 ? bytes / bandwidth * 1000 + latency : 0; }

// Slowest over the ranks of the way to the nearest rank of the neighbour (two levels at most, nothing shared).
Path slowest_way(const Cluster& cluster, const std::vector<int>& ranks, const std::vector<int>& others) {
  Path worst{1e300, 0, -1};
  for (const int rank : ranks) {
    int best = others.front();
    for (const int other : others)
      if (path_between(cluster, rank, other).level < path_between(cluster, rank, best).level) best = other;
    const Path path = path_between(cluster, rank, best);
    worst.bandwidth = std::min(worst.bandwidth, path.bandwidth);
    worst.latency_ms = std::max(worst.latency_ms, path.latency_ms);
  }
  return worst;
}

double reduce_ms(const Cluster& cluster, std::vector<int> ranks, double bytes) {
  const double d = static_cast<double>(ranks.size());
  if (d < 2 || bytes == 0) return 0;
  std::sort(ranks.begin(), ranks.end());
  double bandwidth = 1e300, latency = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Path path = path_between(cluster, ranks[i], ranks[(i + 1) % ranks.size()]);
    bandwidth = std::min(bandwidth, path.bandwidth);
    latency = std::max(latency, path.latency_ms);
  }
  const double ring = 2 * (d - 1) / d * bytes / bandwidth * 1000 + 2 * (d - 1) * latency;
  if (cluster.levels.size() < 2) return ring;
  // Two levels: inside machines, then across them with a share of the bytes each.
  std::vector<int> inside(static_cast<std::size_t>(cluster.levels[1].size), 0);
  for (const int rank : ranks) ++inside[static_cast<std::size_t>(rank / cluster.levels[0].size)];
  int each = 0, machines = 0;
  for (const int count : inside) {
    if (count == 0) continue;
    if (each != 0 && count != each) return ring;
    each = count;
    ++machines;
  }
  if (machines < 2) return ring;
  const Level &low = cluster.levels[0], &high = cluster.levels[1];
  const double two = 2.0 * (each - 1) / each * bytes / low.bandwidth * 1000 + 2.0 * (each - 1) * low.latency_ms +
                     2.0 * (machines - 1) / machines * bytes / each / high.bandwidth * 1000 + 2.0 * (machines - 1) * high.latency_ms;
  return std::min(ring, two);
}

double state_of(const std::string& optimizer) { return optimizer == "sgd" ? 1 : optimizer == "adam" ? 2 : 0; }

}  // namespace

bool BruteForce::is_cut(std::uint32_t layers) const {
  for (const ProfileEdge& edge : profile.edges)
    if (holds(layers, edge.target) && !holds(layers, edge.source)) return false;
  if (options.schedule == "1f1b-async")
    for (const ParameterTie& tie : profile.ties) {
      int inside = 0;
      for (const int layer : tie.layers) inside += holds(layers, layer) ? 1 : 0;
      if (inside != 0 && inside != static_cast<int>(tie.layers.size())) return false;
    }
  return true;
}

std::optional<double> BruteForce::best() {
  for (std::uint32_t set = 0; set < (1U << profile.num_layers()); ++set)
    if (is_cut(set)) cuts_.push_back(set);
  for (const Device& device : cluster.devices) limited_ = limited_ || device.memory_bytes > 0;
  std::map<std::pair<int, int>, std::uint32_t> readers;
  for (const ProfileEdge& edge : profile.edges) readers[{edge.source, edge.output}] |= 1U << edge.target;
  for (const auto& [tensor, by] : readers)
    tensors_.push_back({tensor.first, by, static_cast<double>(profile.layers[tensor.first].output_bytes[tensor.second])});
  list_orders();
  for (const std::vector<int>& order : orders_) {
    order_ = &order;
    extend(0, 0);
  }
  return best_;
}

// Unequal devices on two levels: the machines may change places, and so may the devices of a machine. Stages take runs of places then.
void BruteForce::list_orders() {
  std::vector<int> order(cluster.devices.size());
  std::iota(order.begin(), order.end(), 0);
  orders_ = {order};
  if (one_network() || !mixed()) return;
  const int size = cluster.levels[0].size;
  while (std::next_permutation(order.begin(), order.end())) {
    bool keeps_machines = true;
    for (std::size_t place = 0; place < order.size(); ++place)
      keeps_machines = keeps_machines && order[place] / size == order[place - place % static_cast<std::size_t>(size)] / size;
    if (keeps_machines) orders_.push_back(order);
  }
}

// All ways cost the same.
bool BruteForce::one_network() const {
  if (cluster.levels.size() == 1) return true;
  const Level &low = cluster.levels[0], &high = cluster.levels[1];
  return low.size == 1 || high.size == 1 || (low.bandwidth == high.bandwidth && low.latency_ms == high.latency_ms);
}

bool BruteForce::mixed() const {
  return std::any_of(cluster.devices.begin(), cluster.devices.end(), [&](const Device& d) { return !(d == cluster.devices.front()); });
}

void BruteForce::extend(std::uint32_t placed, std::uint32_t used) {
  if (placed + 1 == (1U << profile.num_layers())) {
    score();
    return;
  }
  if (options.max_stages > 0 && static_cast<int>(stages_.size()) == options.max_stages) return;
  for (const std::uint32_t cut : cuts_)
    if (cut != placed && (cut & placed) == placed) place(placed, cut & ~placed, used);
}

void BruteForce::place(std::uint32_t placed, std::uint32_t layers, std::uint32_t used) {
  const int n = cluster.num_devices();
  if (!one_network() || !mixed()) {
    // Equal devices on one network: consecutive ranks stand for all choices. Two levels: runs of consecutive places (the strided placement is
    // not tried).
    for (std::uint32_t run = used + 1; run + used < (1U << n); run = run << 1 | (used + 1)) go_on(placed, layers, used, run);
    return;
  }
  for (std::uint32_t ranks = 1; ranks < (1U << n); ++ranks) {
    bool ok = (ranks & used) == 0;
    // Of equal devices on one network the lower ones are taken first: the others give nothing new.
    for (int rank = 0; rank < n && ok; ++rank)
      for (int lower = 0; lower < rank && ok && holds(ranks, rank); ++lower)
        ok = holds(used | ranks, lower) || !(cluster.devices[static_cast<std::size_t>(lower)] == cluster.devices[static_cast<std::size_t>(rank)]);
    if (ok) go_on(placed, layers, used, ranks);
  }
}

void BruteForce::go_on(std::uint32_t placed, std::uint32_t layers, std::uint32_t used, std::uint32_t ranks) {
  Stage stage{layers, {}, false};
  for (int rank = 0; rank < cluster.num_devices(); ++rank)
    if (holds(ranks, rank)) stage.ranks.push_back((*order_)[static_cast<std::size_t>(rank)]);
  std::sort(stage.ranks.begin(), stage.ranks.end());
  if (options.straight && stage.ranks.size() > 1) return;
  // Where memory has no limit, recomputing only costs time.
  const bool may_recompute = options.recompute != Recompute::Never && (limited_ || options.recompute == Recompute::Always);
  for (int recompute = options.recompute == Recompute::Always ? 1 : 0; recompute <= (may_recompute ? 1 : 0) && plans < most_plans; ++recompute) {
    stage.recompute = recompute == 1;
    stages_.push_back(stage);
    extend(placed | layers, used | ranks);
    stages_.pop_back();
  }
}

void BruteForce::score() {
  ++plans;
  int total = 0, highest = 0;
  for (const Stage& stage : stages_) {
    total += static_cast<int>(stage.ranks.size());
    highest = std::max(highest, *std::max_element(stage.ranks.begin(), stage.ranks.end()));
  }
  if (highest + 1 != total) return;  // idle devices are the last ones
  if (!options.fewer_devices && total != cluster.num_devices()) return;
  const double m = options.micro_batches;
  const bool flush = options.schedule != "1f1b-async";
  double largest = 0, fill = 0;
  std::uint32_t before = 0;
  int ranks_before = 0;
  for (std::size_t s = 0; s < stages_.size(); ++s) {
    const Stage& stage = stages_[s];
    const double d = static_cast<double>(stage.ranks.size());
    double speed = 1e300, memory = 1e300;
    for (const int rank : stage.ranks) {
      const Device& device = cluster.devices[static_cast<std::size_t>(rank)];
      speed = std::min(speed, device.speed);
      if (device.memory_bytes > 0) memory = std::min(memory, static_cast<double>(device.memory_bytes));
    }
    double forward = 0, backward = 0, update = 0, weights = 0, stashed = 0;
    for (int layer = 0; layer < profile.num_layers(); ++layer) {
      if (!holds(stage.layers, layer)) continue;
      const LayerProfile& l = profile.layers[static_cast<std::size_t>(layer)];
      forward += l.forward_ms / speed, backward += l.backward_ms / speed, update += l.update_ms / speed;
      weights += static_cast<double>(l.parameter_bytes);
      stashed += static_cast<double>(l.stashed_bytes ? *l.stashed_bytes : l.total_output_bytes());
    }
    if (!flush)
      for (const ParameterTie& tie : profile.ties)
        if (holds(stage.layers, tie.layers.front())) weights -= static_cast<double>(tie.bytes) * static_cast<double>(tie.layers.size() - 1);
    if (stage.recompute) backward += forward;
    const double in = bytes_between(tensors_, before, stage.layers), out = bytes_between(tensors_, stage.layers, ~(before | stage.layers));
    double in_ms = 0, out_ms = 0;
    if (s > 0) {
      const Path way = slowest_way(cluster, stage.ranks, stages_[s - 1].ranks);
      in_ms = ms(in, way.bandwidth, way.latency_ms);
    }
    if (s + 1 < stages_.size()) {
      const Path way = slowest_way(cluster, stage.ranks, stages_[s + 1].ranks);
      out_ms = ms(out, way.bandwidth, way.latency_ms);
    }
    const double reduce = reduce_ms(cluster, stage.ranks, weights);
    const double steps = std::max(m, d);
    if (!flush) {
      largest = std::max(largest, both(both(forward + backward + update * d / steps, reduce * d / steps, options.reduce_overlap), in_ms + out_ms,
                                       options.transfer_overlap) /
                                      d);
    } else {
      largest = std::max(largest, (std::ceil(m / d) - 1) * both(forward + backward, in_ms + out_ms, options.transfer_overlap) + update + reduce);
      fill += forward + backward + 2 * in_ms;
    }
    const int warm = (total - 1 - ranks_before) / static_cast<int>(stage.ranks.size()) + 1 + options.extra_in_flight;
    int flight = warm, versions = 1;
    if (options.schedule == "1f1b") flight = std::min(warm, static_cast<int>(std::ceil(m / d)));
    if (options.schedule == "gpipe") flight = static_cast<int>(std::ceil(m / d));
    if (options.policy == "stash" || (options.policy.empty() && !flush)) versions = flight;
    if (options.policy == "2bw") versions = 2;
    const double kept = stage.recompute ? in : stashed + in;
    const double need = weights * (versions + 1 + state_of(options.optimizer)) + kept * flight + (stage.recompute ? stashed : 0) + in + out;
    if (need > memory) return;
    before |= stage.layers;
    ranks_before += static_cast<int>(stage.ranks.size());
  }
  const double period = flush ? (largest + fill) / m : largest;
  if (!best_ || period < *best_) {
    best_ = period;
    best_shape.clear();
    for (const Stage& stage : stages_) {
      best_shape += "[" + std::to_string(stage.layers) + (stage.recompute ? "r:" : ":");
      for (const int rank : stage.ranks) best_shape += " " + std::to_string(rank);
      best_shape += "] ";
    }
  }
}

}  // namespace pipedream
