#include "pipedream/plan/piper.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <random>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/plan/piper_recompute.hpp"
#include "tests/graph/golden_errors.hpp"
#include "tests/plan/published_optima.hpp"

namespace pipedream {
namespace {

const std::filesystem::path kInputs = "../shared/data/planner/piper";

TEST(Piper, EqualsTheTableOfOptima) {
  if (!std::filesystem::exists(kInputs)) GTEST_SKIP() << kInputs << " is absent";
  for (const test::PiperOptimum& row : test::kPiperOptima) {
    const PiperOptions options = options_of(row);
    const PiperPlan plan = plan_piper(graph_of(row, kInputs), options);
    const double last_digit = std::pow(10, std::floor(std::log10(row.time)) - 8);  // nine are given
    EXPECT_NEAR(plan.time, row.time, 0.51 * last_digit) << row.file << " " << row.devices << " " << row.memory_gib;
    EXPECT_TRUE(plan.certified);
    int devices = 0;
    for (const PiperStage& stage : plan.stages) {
      devices += stage.devices();
      EXPECT_LE(stage.memory_bytes, options.memory_bytes + static_cast<double>(stage.layers.size() * static_cast<std::size_t>(stage.in_flight)));
      EXPECT_EQ(row.micro_batches % stage.replicas, 0);
    }
    EXPECT_LE(devices, row.devices);
  }
}

// ---- all plans of small random instances

class RandomCase {
 public:
  explicit RandomCase(std::uint64_t seed) : random_(seed) {
    const int n = pick(1, 5);
    graph.file = "random";
    graph.devices = pick(1, 6);
    graph.micro_batches = std::vector<int>{1, 2, 3, 4, 6, 12}[static_cast<std::size_t>(pick(0, 5))];
    graph.bandwidth = pick(1, 20);
    graph.memory_bytes = pick(10, 300);
    for (int v = 0; v < n; ++v) graph.nodes.push_back({v, "n" + std::to_string(v), {}, {}, {}});
    for (int v = 1; v < n; ++v)
      for (int u = 0; u < v; ++u)
        if (chance(45)) add_edge(u, v);
    for (PiperNode& node : graph.nodes)
      for (const int t : {1, 2, 3})
        if (t == 1 ? chance(90) : chance(50)) node.degrees.emplace(t, degree(node, t));
    for (PiperNode& node : graph.nodes)
      if (node.degrees.empty()) node.degrees.emplace(1, degree(node, 1));
    if (chance(15)) options.straight = true;
    if (chance(20)) options.recompute = chance(50) ? Recompute::Never : Recompute::Always;
  }
  PiperGraph graph;
  PiperOptions options;

 private:
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  void add_edge(int u, int v) {
    graph.nodes[static_cast<std::size_t>(u)].out_edges.push_back(static_cast<int>(graph.edges.size()));
    graph.nodes[static_cast<std::size_t>(v)].in_edges.push_back(static_cast<int>(graph.edges.size()));
    graph.edges.push_back({u, v, static_cast<double>(pick(0, 40))});
  }
  PiperDegree degree(const PiperNode& node, int t) {
    PiperDegree result;
    result.parameter_bytes = chance(30) ? 0 : pick(0, 200) / t;
    for (std::size_t e = 0; e < node.in_edges.size(); ++e) result.sync_in_bytes.push_back(t == 1 ? 0 : pick(0, 10));
    for (std::size_t e = 0; e < node.out_edges.size(); ++e) result.sync_out_bytes.push_back(t == 1 ? 0 : pick(0, 10));
    static const std::vector<std::string> names{"vanilla", "activation recomp", "half"};
    const int variants = chance(20) ? 1 : chance(70) ? 2 : 3;
    for (int i = 0; i < variants; ++i)
      result.variants.push_back({names[static_cast<std::size_t>(i)], static_cast<double>(pick(0, 20) + 3 * i) / t,
                                 static_cast<double>(pick(0, 60) / (i + 1)), static_cast<double>(pick(0, 30) + 5 * i)});
    return result;
  }
  std::mt19937_64 random_;
};

// The least time of all splits, by trying every chain of cuts with every degree, count of replicas and choice of variants. Infinite: nothing fits.
class EverySplit {
 public:
  explicit EverySplit(const RandomCase& c) : graph_(c.graph), options_(c.options), all_((1U << c.graph.nodes.size()) - 1) {}
  double best() { return best_until(all_, 0, 0); }

 private:
  bool is_cut(unsigned set) const {
    for (const PiperEdge& edge : graph_.edges)
      if ((set >> edge.target & 1) != 0 && (set >> edge.source & 1) == 0) return false;
    return true;
  }

  double best_until(unsigned set, int devices, int replicas) {
    if (set == 0) return 0;
    double best = INFINITY;
    for (unsigned lower = (set - 1) & set;; lower = (lower - 1) & set) {
      if (is_cut(lower))
        for (int t = 1; devices + t <= graph_.devices; ++t)
          for (int d = 1; devices + t * d <= graph_.devices && replicas + d <= graph_.micro_batches; ++d) {
            if (graph_.micro_batches % d != 0 || (options_.straight && d > 1)) continue;
            const int in_flight = (replicas + d + d - 1) / d;
            const double time = stage_time(set & ~lower, t, d, in_flight);
            if (time < best) best = std::min(best, std::max(time, best_until(lower, devices + t * d, replicas + d)));
          }
      if (lower == 0) break;
    }
    return best;
  }

  double stage_time(unsigned stage, int t, int d, int in_flight) { return add_layer(stage, 0, t, d, in_flight, 0, 0); }

  double add_layer(unsigned stage, std::size_t v, int t, int d, int in_flight, double time, double memory) {
    if (memory > graph_.memory_bytes) return INFINITY;
    if (v == graph_.nodes.size()) return time;
    if ((stage >> v & 1) == 0) return add_layer(stage, v + 1, t, d, in_flight, time, memory);
    const PiperNode& node = graph_.nodes[v];
    if (node.degrees.count(t) == 0) return INFINITY;
    const PiperDegree& degree = node.degrees.at(t);
    double bytes = 4.0 * (d - 1) * degree.parameter_bytes / graph_.micro_batches;
    for (std::size_t e = 0; e < node.in_edges.size(); ++e) {
      const PiperEdge& edge = graph_.edges[static_cast<std::size_t>(node.in_edges[e])];
      if ((stage >> edge.source & 1) == 0) bytes += 2 * (edge.bytes + degree.sync_in_bytes[e]);
    }
    for (std::size_t e = 0; e < node.out_edges.size(); ++e) {
      const PiperEdge& edge = graph_.edges[static_cast<std::size_t>(node.out_edges[e])];
      if ((stage >> edge.target & 1) == 0) bytes += 2 * (edge.bytes + degree.sync_out_bytes[e]);
    }
    double best = INFINITY;
    for (const PiperVariant& variant : degree.variants) {
      const bool plain = variant.name == "vanilla";
      if (degree.variants.size() > 1 && ((options_.recompute == Recompute::Never && !plain) || (options_.recompute == Recompute::Always && plain)))
        continue;
      best = std::min(best, add_layer(stage, v + 1, t, d, in_flight, time + (variant.time + bytes / graph_.bandwidth) / d,
                                      memory + variant.memory_a_bytes * in_flight + variant.memory_b_bytes));
    }
    return best;
  }

  const PiperGraph& graph_;
  const PiperOptions& options_;
  unsigned all_;
};

// More cases: PIPEDREAM_ORACLE_CASES=n.
TEST(Piper, EveryPlanIsTheBestOfAll) {
  const char* asked = std::getenv("PIPEDREAM_ORACLE_CASES");
  const std::uint64_t cases = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 2000;
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= cases && !HasFailure(); ++seed) {
    const RandomCase c(seed);
    const double best = EverySplit(c).best();
    try {
      const PiperPlan plan = plan_piper(c.graph, c.options);
      EXPECT_NEAR(plan.time, best, 1e-9 * best + 1e-12) << "seed " << seed;
      EXPECT_TRUE(plan.certified) << "seed " << seed;
      const PiperPlan again = evaluate_piper(c.graph, c.options, plan);
      EXPECT_EQ(again.stages, plan.stages) << "seed " << seed;
      for (const PiperStage& stage : plan.stages) EXPECT_LE(stage.memory_bytes, c.graph.memory_bytes) << "seed " << seed;
      ++feasible;
    } catch (const InfeasibleError& error) {
      EXPECT_TRUE(std::isinf(best)) << "seed " << seed << ": " << best << ", but " << error.what();
    }
  }
  EXPECT_GT(feasible, static_cast<int>(cases / 3));
  EXPECT_LT(feasible, static_cast<int>(cases));
}

// Up to twelve layers with one or two leaner variants each: the least extra time is found with exactly that budget, and nothing with one less.
TEST(Piper, RecomputationIsTheBestOfAllChoices) {
  std::mt19937_64 random(7);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  int feasible = 0;
  for (int round = 0; round < 300; ++round) {
    PiperWork work;
    work.nodes = pick(1, 3) == 1 ? pick(1, 7) : pick(8, 12);
    work.degrees = {1};
    work.layers.resize(1);
    const bool alike = pick(0, 3) == 0;  // many equal savings, as in transformers
    for (int v = 0; v < work.nodes; ++v) {
      PiperLayerWork layer{true, 0, 100, 0, alike ? 50 : pick(10, 99), pick(0, 20), {}};
      for (int k = pick(v < 8 ? 1 : 0, v < 6 ? 2 : 1); k > 0; --k)
        layer.leaner.push_back({k, pick(0, 40), pick(0, static_cast<int>(layer.a_bytes)), pick(0, 60)});
      work.layers[0].push_back(layer);
    }
    const int in_flight = pick(1, 4);
    const std::vector<char> inside = [&] {
      std::vector<char> result;
      for (int v = 0; v < work.nodes; ++v) result.push_back(pick(0, 4) > 0 ? 1 : 0);
      return result;
    }();
    const std::int64_t need = pick(1, 800);
    std::int64_t best = INT64_MAX;
    const std::function<void(int, std::int64_t, std::int64_t)> every = [&](int v, std::int64_t saved, std::int64_t extra) {
      if (v == work.nodes) {
        if (saved >= need) best = std::min(best, extra);
        return;
      }
      every(v + 1, saved, extra);
      const PiperLayerWork& layer = work.layer(0, v);
      for (const PiperChoice& choice : layer.leaner)
        if (inside[static_cast<std::size_t>(v)] != 0)
          every(v + 1, saved + (layer.a_bytes - choice.a_bytes) * in_flight + layer.b_bytes - choice.b_bytes, extra + choice.extra);
    };
    every(0, 0, 0);
    PiperRecompute recompute(work, 0, in_flight);
    const auto in_stage = [&](int node) { return inside[static_cast<std::size_t>(node)] != 0; };
    const auto chosen = recompute.choose(need, best == INT64_MAX ? 1'000'000 : best, in_stage);
    ASSERT_EQ(chosen.has_value(), best != INT64_MAX) << "round " << round;
    if (!chosen) continue;
    ++feasible;
    EXPECT_FALSE(recompute.choose(need, best - 1, in_stage).has_value()) << "round " << round;
    std::int64_t saved = 0, extra = 0;
    for (const auto& [node, variant] : *chosen) {
      EXPECT_TRUE(in_stage(node));
      const PiperLayerWork& layer = work.layer(0, node);
      for (const PiperChoice& choice : layer.leaner)
        if (choice.variant == variant) {
          saved += (layer.a_bytes - choice.a_bytes) * in_flight + layer.b_bytes - choice.b_bytes;
          extra += choice.extra;
        }
    }
    EXPECT_GE(saved, need) << "round " << round;
    EXPECT_LE(extra, best) << "round " << round;
  }
  EXPECT_GT(feasible, 100);
}

// A single layer of 60 (time) and 100 bytes of parameters on 3 devices, 6 micro-batches, 10 bytes per unit of time:
// 3 replicas take 60/3 + 4 * 2/3 * 100 / 6 / 10 = 20 + 4.444; one replica holds 1 sample in flight.
TEST(Piper, OneLayerByHand) {
  PiperGraph graph{"hand", {{7, "n", {}, {}, {}}}, {}, 3, 50, 10, 6};
  graph.nodes[0].degrees[1] = {100, {}, {}, {{"vanilla", 60, 20, 30}}};
  const PiperPlan plan = plan_piper(graph, {});
  EXPECT_NEAR(plan.time, 20 + 8.0 / 3 * 100 / 60, 1e-12);
  ASSERT_EQ(plan.stages.size(), 1U);
  EXPECT_EQ(plan.stages[0].replicas, 3);
  EXPECT_EQ(plan.stages[0].memory_bytes, 50);
  graph.memory_bytes = 49;
  EXPECT_THROW(plan_piper(graph, {}), InfeasibleError);
}

TEST(Piper, NothingCostsNothing) {
  PiperGraph graph{"free", {{0, "a", {}, {0}, {}}, {1, "b", {0}, {}, {}}}, {{0, 1, 0}}, 2, 0, 1, 1};
  graph.nodes[0].degrees[1] = {0, {}, {0}, {{"vanilla", 0, 0, 0}}};
  graph.nodes[1].degrees[1] = {0, {0}, {}, {{"vanilla", 0, 0, 0}}};
  const PiperPlan plan = plan_piper(graph, {});
  EXPECT_EQ(plan.time, 0);
  EXPECT_TRUE(plan.certified);
}

// 18 layers beside each other have 2^18 cuts: one order is searched. Three devices with six of them each are as fast as can be; with four devices two
// have five, which nothing proves to be the best.
TEST(Piper, TooManyCutsAreSearchedInOneOrder) {
  PiperGraph graph{"wide", {}, {}, 3, 100, 1, 1};
  for (int v = 0; v < 18; ++v) {
    graph.nodes.push_back({v, std::to_string(v), {}, {}, {}});
    graph.nodes.back().degrees[1] = {0, {}, {}, {{"vanilla", 1, 1, 1}}};
  }
  graph.micro_batches = 3;
  const PiperPlan even = plan_piper(graph, {});
  EXPECT_NEAR(even.time, 6, 1e-12);
  EXPECT_TRUE(even.certified);
  graph.devices = 4;
  graph.micro_batches = 5;  // no replicas: 2, 3 and 4 do not divide it
  const PiperPlan uneven = plan_piper(graph, {});
  EXPECT_NEAR(uneven.time, 5, 1e-12);
  EXPECT_NEAR(uneven.bound, 4.5, 1e-12);
  EXPECT_FALSE(uneven.certified);
}

// Two layers of 10 bytes each that stay (B) and 4 per sample in flight (A) on two devices: the first holds two samples, 18 bytes.
TEST(Piper, TooLittleMemoryNamesTheTightestStage) {
  PiperGraph graph{"tight", {{0, "a", {}, {0}, {}}, {1, "b", {0}, {}, {}}}, {{0, 1, 0}}, 2, 15, 1, 3};
  graph.nodes[0].degrees[1] = {0, {}, {0}, {{"vanilla", 1, 4, 10}}};
  graph.nodes[1].degrees[1] = {0, {0}, {}, {{"vanilla", 1, 4, 10}}};
  try {
    (void)plan_piper(graph, {});
    FAIL() << "it fits";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("needs 18 B for stage 0 (layer 'a'), the devices have 15 B: 3 B are missing"));
  }
  graph.memory_bytes = 18;
  EXPECT_EQ(plan_piper(graph, {}).stages.size(), 2U);
}

// Two layers on two tensor degrees with two variants each, then a few characters changed: an error of ours or a plan, nothing else.
TEST(Piper, MutatedFilesGiveAnErrorOrAPlan) {
  const std::string variant =
      R"({"id":"vanilla","timePerSample":3.5,"parameterSize":20,"memoryUsageA":7,"memoryUsageB":9,"syncTimeFw":{$},"syncTimeBw":{#}},
    {"id":"lean","timePerSample":5,"parameterSize":20,"memoryUsageA":1,"memoryUsageB":10,"syncTimeFw":{$},"syncTimeBw":{#}})";
  const auto filled = [&](const std::string& in, const std::string& out) {
    std::string text;
    for (const char c : variant) text += c == '$' ? in : c == '#' ? out : std::string(1, c);
    return R"({"1":[)" + text + R"(],"2":[)" + text + "]}";
  };
  const std::string whole = R"({"maxDevices":4,"maxMemoryPerDevice":30,"bandwidth":10,"mbsInBatch":12,"nodes":[{"id":1,"TMPCs":)" +
                            filled("", R"("2":4)") + R"(},{"id":2,"TMPCs":)" + filled(R"("1":4)", "") +
                            R"(}],"edges":[{"sourceId":1,"destId":2,"communicationCost":6}]})";
  EXPECT_NO_THROW((void)plan_piper(read_piper(whole, "whole"), {}));
  std::mt19937_64 random(1);
  int plans = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    static const std::string characters = "0123456789-.e{}[]\",:an";
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) text[random() % text.size()] = characters[random() % characters.size()];
    try {
      const PiperPlan plan = plan_piper(read_piper(text, "mutated"), {});
      EXPECT_TRUE(std::isfinite(plan.time)) << text;
      EXPECT_GE(plan.time, plan.bound * (1 - 1e-9)) << text;
      ++plans;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(plans, 50);
}

TEST(Piper, BrokenFilesNameThePlace) {
  expect_golden_errors(std::string(PIPEDREAM_SOURCE_DIR) + "/tests/plan/broken_piper.golden", 18,
                       [](const std::string& text) { (void)plan_piper(read_piper(text, "file"), {}); });
}

}  // namespace
}  // namespace pipedream
