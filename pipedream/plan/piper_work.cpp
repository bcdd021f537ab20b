#include "pipedream/plan/piper_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

constexpr int kMostDevices = 1 << 16;
constexpr double kMostBytes = 4e18;
constexpr const char* kPlain = "vanilla";  // what that project calls the variant that keeps everything

struct Scaled {
  const PiperGraph& graph;
  double scale;
  [[nodiscard]] std::int64_t time(double value) const { return std::llround(value * scale); }
  [[nodiscard]] std::int64_t transfer(double bytes) const { return time(bytes / graph.bandwidth); }
};

// All replicas of one layer that the file gives, added up: nothing that is compared is larger.
double largest_time(const PiperGraph& graph) {
  double sum = 0;
  for (const PiperNode& node : graph.nodes) {
    double most = 0;
    for (const auto& [t, degree] : node.degrees) {
      double bytes = 4 * degree.parameter_bytes;
      for (const double sync : degree.sync_in_bytes) bytes += 2 * sync;
      for (const double sync : degree.sync_out_bytes) bytes += 2 * sync;
      for (const PiperVariant& variant : degree.variants) most = std::max(most, variant.time + bytes / graph.bandwidth);
    }
    sum += most;
  }
  for (const PiperEdge& edge : graph.edges) sum += 4 * edge.bytes / graph.bandwidth;
  return sum;
}

// A power of two, so that scaling itself rounds nothing; sums times devices stay below 2^62.
double scale_of(double largest, int devices) {
  if (largest == 0) return 1;
  const double log = 60 - std::ceil(std::log2(largest)) - std::ceil(std::log2(devices));
  return std::exp2(std::clamp(log, -900.0, 900.0));
}

void check_bytes(const PiperGraph& graph, int in_flight) {
  double a = 0, b = 0;
  for (const PiperNode& node : graph.nodes) {
    double most_a = 0, most_b = 0;
    for (const auto& [t, degree] : node.degrees)
      for (const PiperVariant& variant : degree.variants) {
        most_a = std::max(most_a, variant.memory_a_bytes);
        most_b = std::max(most_b, variant.memory_b_bytes);
      }
    a += most_a;
    b += most_b;
  }
  if (a * (in_flight + 1.0) + b > kMostBytes)
    throw InputError(graph.file, fmt::format("the memory of all layers sums up to {} bytes, too much to plan with", a * in_flight + b),
                     "check the unit: bytes");
}

bool allowed(const PiperVariant& variant, const std::vector<PiperVariant>& all, Recompute recompute) {
  if (recompute == Recompute::Auto || all.size() == 1) return true;
  return (variant.name == kPlain) == (recompute == Recompute::Never);
}

PiperLayerWork layer_work(const PiperDegree& degree, const Scaled& scaled, Recompute recompute) {
  PiperLayerWork work;
  std::vector<int> variants;
  for (std::size_t v = 0; v < degree.variants.size(); ++v)
    if (allowed(degree.variants[v], degree.variants, recompute)) variants.push_back(static_cast<int>(v));
  if (variants.empty()) return work;
  const auto at = [&](int v) -> const PiperVariant& { return degree.variants[static_cast<std::size_t>(v)]; };
  work.possible = true;
  work.variant = *std::min_element(variants.begin(), variants.end(), [&](int a, int b) { return at(a).time < at(b).time; });
  work.time = scaled.time(at(work.variant).time);
  work.reduce = scaled.transfer(4 * degree.parameter_bytes / scaled.graph.micro_batches);
  work.a_bytes = std::llround(at(work.variant).memory_a_bytes);
  work.b_bytes = std::llround(at(work.variant).memory_b_bytes);
  for (const int v : variants)
    if (v != work.variant)
      work.leaner.push_back({v, scaled.time(at(v).time) - work.time, std::llround(at(v).memory_a_bytes), std::llround(at(v).memory_b_bytes)});
  return work;
}

std::vector<int> divisors(int number, int most) {
  std::vector<int> result;
  for (int d = 1; d <= std::min(number, most); ++d)
    if (number % d == 0) result.push_back(d);
  return result;
}

}  // namespace

PiperGraph with_options(PiperGraph graph, const PiperOptions& options) {
  if (options.devices >= 0) graph.devices = options.devices;
  if (options.memory_bytes >= 0) graph.memory_bytes = options.memory_bytes;
  if (options.bandwidth >= 0) graph.bandwidth = options.bandwidth;
  if (options.micro_batches >= 0) graph.micro_batches = options.micro_batches;
  if (graph.devices < 1 || graph.devices > kMostDevices)
    throw UsageError(fmt::format("{} devices: 1 to {} are planned with", graph.devices, kMostDevices));
  if (graph.micro_batches < 1) throw UsageError(fmt::format("{} micro-batches per mini-batch: at least 1 is needed", graph.micro_batches));
  if (!(graph.bandwidth > 0)) throw UsageError("the bandwidth is 0", "give bytes per second");
  return graph;
}

PiperWork make_piper_work(const PiperGraph& graph, const PiperOptions& options) {
  PiperWork work;
  work.nodes = static_cast<int>(graph.nodes.size());
  work.devices = graph.devices;
  work.most_replicas = std::min(graph.devices, graph.micro_batches);
  work.memory_bytes = graph.memory_bytes > kMostBytes ? static_cast<std::int64_t>(kMostBytes) : static_cast<std::int64_t>(graph.memory_bytes);
  work.replicas = options.straight ? std::vector<int>{1} : divisors(graph.micro_batches, work.most_replicas);
  check_bytes(graph, work.most_replicas);
  const double largest = largest_time(graph);
  if (!std::isfinite(largest)) throw InputError(graph.file, "the times of all layers sum up to more than a number can hold", "check the unit");
  work.scale = scale_of(largest, graph.devices);
  work.most_time = std::llround(largest * work.scale) + 4 * (work.nodes + static_cast<int>(graph.edges.size())) + 1;  // every term may be rounded up
  const Scaled scaled{graph, work.scale};

  std::set<int> degrees;
  for (const PiperNode& node : graph.nodes)
    for (const auto& [t, degree] : node.degrees)
      if (t <= graph.devices) degrees.insert(t);
  work.degrees.assign(degrees.begin(), degrees.end());
  for (const int t : work.degrees) {
    auto& layers = work.layers.emplace_back(graph.nodes.size());
    auto& in = work.in.emplace_back(graph.edges.size(), 0);
    auto& out = work.out.emplace_back(graph.edges.size(), 0);
    for (std::size_t v = 0; v < graph.nodes.size(); ++v) {
      const PiperNode& node = graph.nodes[v];
      const auto at = node.degrees.find(t);
      if (at == node.degrees.end()) continue;
      layers[v] = layer_work(at->second, scaled, options.recompute);
      const auto cost = [&](int edge, double sync) { return scaled.transfer(2 * (graph.edges[static_cast<std::size_t>(edge)].bytes + sync)); };
      for (std::size_t i = 0; i < node.in_edges.size(); ++i)
        in[static_cast<std::size_t>(node.in_edges[i])] = cost(node.in_edges[i], at->second.sync_in_bytes[i]);
      for (std::size_t i = 0; i < node.out_edges.size(); ++i)
        out[static_cast<std::size_t>(node.out_edges[i])] = cost(node.out_edges[i], at->second.sync_out_bytes[i]);
    }
  }
  return work;
}

}  // namespace pipedream
