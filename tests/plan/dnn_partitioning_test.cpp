#include "pipedream/plan/dnn_partitioning.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "tests/graph/golden_errors.hpp"
#include "tests/plan/published_optima.hpp"

namespace pipedream {
namespace {

const std::filesystem::path kInputs = "../shared/data/planner/dnn-partitioning/throughput-inputs";

// PIPEDREAM_SLOW_TESTS=1 adds the large graphs.
TEST(DnnPartitioning, EqualsTheTableOfContiguousOptima) {
  if (!std::filesystem::exists(kInputs)) GTEST_SKIP() << kInputs << " is absent";
  for (const test::DnnOptimum& row : test::kDnnOptima) {
    if (row.slow && std::getenv("PIPEDREAM_SLOW_TESTS") == nullptr) continue;
    const std::string file = kInputs / (std::string(row.file) + ".json"), text = read_file(file);
    const Plan plan = plan_dnn_partitioning(text, file, {});
    EXPECT_NEAR(plan.predicted.period_ms, row.with_cpu, 6e-7) << row.file;  // six decimals are given
    EXPECT_TRUE(plan.predicted.certified) << row.file;
    const Plan without = plan_dnn_partitioning(text, file, {-1, 0, -1});
    EXPECT_NEAR(without.predicted.period_ms, row.without_cpu, 6e-7) << row.file << " without CPU";
    EXPECT_TRUE(without.predicted.certified) << row.file << " without CPU";
  }
}

// ---- all splits of small random graphs

struct RandomNode {
  int cpu = 0, accelerator = 0, bytes = 0, cost = 0;
  bool supported = true;
};

// Forward nodes 0..n-1; with `training` node n + v is the backward of v, of the same colour, with the edges turned round.
struct RandomGraph {
  std::vector<RandomNode> nodes;
  std::vector<std::pair<int, int>> edges;
  int forward = 0, accelerators = 0, cpus = 0, memory = 0;
  bool training = false;

  explicit RandomGraph(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    forward = pick(1, 6);
    training = pick(0, 1) == 1;
    accelerators = pick(0, 3);
    cpus = accelerators == 0 ? pick(1, 2) : pick(0, 2);
    memory = pick(0, 1) == 1 ? 1000 : pick(5, 60);
    for (int v = 0; v < forward * (training ? 2 : 1); ++v) {
      RandomNode node{pick(0, 80), pick(0, 20), pick(0, 20), pick(0, 10), pick(1, 100) > 8};
      if (pick(1, 100) <= 25) node.cpu = node.accelerator = 0, node.supported = true;  // a leaf of this kind is merged
      nodes.push_back(node);
    }
    for (int v = 1; v < forward; ++v)
      for (int u = 0; u < v; ++u)
        if (pick(1, 100) <= 40) {
          edges.emplace_back(u, v);
          if (training) edges.emplace_back(forward + v, forward + u);
        }
  }
  int colour(int node) const { return node % forward; }

  std::string json() const {
    std::string text = fmt::format(R"({{"maxFPGAs":{},"maxCPUs":{},"maxSizePerFPGA":{},"nodes":[)", accelerators, cpus, memory);
    for (std::size_t v = 0; v < nodes.size(); ++v)
      text += fmt::format(R"({}{{"id":{},"supportedOnFpga":{},"cpuLatency":{},"fpgaLatency":{},"isBackwardNode":{},"colorClass":{},"size":{}}})",
                          v > 0 ? "," : "", v, nodes[v].supported ? 1 : 0, nodes[v].cpu, nodes[v].accelerator, static_cast<int>(v) >= forward ? 1 : 0,
                          colour(static_cast<int>(v)), nodes[v].bytes);
    text += "],\"edges\":[";
    for (std::size_t e = 0; e < edges.size(); ++e)
      text += fmt::format(R"({}{{"sourceId":{},"destId":{},"cost":{}}})", e > 0 ? "," : "", edges[e].first, edges[e].second,
                          nodes[static_cast<std::size_t>(edges[e].first)].cost);
    return text + "]}";
  }

  // Load of the nodes whose colours are in the set; infinite if they do not fit.
  double load(unsigned set, bool on_cpu) const {
    double sum = 0;
    int held = 0;
    for (std::size_t v = 0; v < nodes.size(); ++v) {
      if ((set >> colour(static_cast<int>(v)) & 1) == 0) continue;
      sum += on_cpu ? nodes[v].cpu : nodes[v].supported ? nodes[v].accelerator : 1e6;
      held += nodes[v].bytes;
    }
    if (on_cpu) return sum;
    if (held > memory) return INFINITY;
    for (std::size_t u = 0; u < nodes.size(); ++u) {
      bool crosses = false;
      for (const auto& [from, to] : edges) crosses = crosses || (from == static_cast<int>(u) && (set >> colour(from) & 1) != (set >> colour(to) & 1));
      if (crosses) sum += paid(static_cast<int>(u), set) ? nodes[u].cost : 0;
    }
    return sum;
  }
  // A producer outside pays here if a reader lies here, one inside if a reader lies elsewhere.
  bool paid(int u, unsigned set) const {
    const bool inside = (set >> colour(u) & 1) != 0;
    for (const auto& [from, to] : edges)
      if (from == u && ((set >> colour(to) & 1) != 0) != inside) return true;
    return false;
  }

  double best(unsigned set, int used_accelerators, int used_cpus) const {
    if (set == 0) return 0;
    double result = INFINITY;
    for (unsigned lower = (set - 1) & set;; lower = (lower - 1) & set) {
      bool cut = true;
      for (const auto& [u, v] : edges)
        if (v < forward && (lower >> v & 1) != 0 && (lower >> u & 1) == 0) cut = false;
      if (cut && used_accelerators < accelerators)
        if (const double own = load(set & ~lower, false); own < result)
          result = std::min(result, std::max(own, best(lower, used_accelerators + 1, used_cpus)));
      if (cut && used_cpus < cpus)
        if (const double own = load(set & ~lower, true); own < result)
          result = std::min(result, std::max(own, best(lower, used_accelerators, used_cpus + 1)));
      if (lower == 0) return result;
    }
  }
};

// More cases: PIPEDREAM_ORACLE_CASES=n.
TEST(DnnPartitioning, EverySplitIsTheBestOfAll) {
  const char* asked = std::getenv("PIPEDREAM_ORACLE_CASES");
  const std::uint64_t cases = asked != nullptr ? std::strtoull(asked, nullptr, 10) : 1000;
  int feasible = 0;
  for (std::uint64_t seed = 1; seed <= cases && !HasFailure(); ++seed) {
    const RandomGraph graph(seed);
    const double best = graph.best((1U << graph.forward) - 1, 0, 0);
    try {
      const Plan plan = plan_dnn_partitioning(graph.json(), "random", {});
      EXPECT_NEAR(plan.predicted.period_ms, best, 1e-9) << "seed " << seed;
      EXPECT_TRUE(plan.predicted.certified) << "seed " << seed;
      double largest = 0;
      for (const StagePlan& stage : plan.stages) {
        unsigned set = 0;
        for (const std::string& layer : stage.layers) set |= 1U << graph.colour(std::stoi(layer));
        const double load = graph.load(set, stage.name.find("cpu") != std::string::npos);
        EXPECT_LE(load, best + 1e-9) << "seed " << seed << " stage " << stage.name;
        largest = std::max(largest, stage.predicted.load_ms);
      }
      EXPECT_NEAR(largest, best, 1e-9) << "seed " << seed;
      ++feasible;
    } catch (const InfeasibleError& error) {
      EXPECT_TRUE(std::isinf(best)) << "seed " << seed << ": " << best << ", but " << error.what();
    }
  }
  EXPECT_GT(feasible, static_cast<int>(cases / 3));
}

// Forward 1 -> 2, backward 20 -> 10, of two colours: two layers with their gradients, not four.
TEST(DnnPartitioning, AProfileHasALayerPerColour) {
  const auto node = [](int id, int colour, bool backward, int ms) {
    return fmt::format(R"({{"id":{},"supportedOnFpga":1,"cpuLatency":1,"fpgaLatency":{},"isBackwardNode":{},"colorClass":{},"size":8}})", id, ms,
                       backward, colour);
  };
  const std::string text =
      fmt::format(R"({{"maxFPGAs":2,"maxCPUs":0,"maxSizePerFPGA":100,"nodes":[{},{},{},{}],"edges":[)", node(1, 1, false, 3), node(2, 2, false, 4),
                  node(10, 1, true, 5), node(20, 2, true, 6)) +
      R"({"sourceId":1,"destId":2,"cost":0.5,"size":70},{"sourceId":2,"destId":20,"cost":0,"size":0},{"sourceId":20,"destId":10,"cost":0.5,"size":70}]})";
  const Profile profile = read_dnn_partitioning(text, "file").profile;
  ASSERT_EQ(profile.num_layers(), 2);
  EXPECT_EQ(profile.layers[0].name, "1");
  EXPECT_EQ(profile.layers[0].forward_ms, 3);
  EXPECT_EQ(profile.layers[0].backward_ms, 5);
  EXPECT_EQ(profile.layers[0].parameter_bytes, 16);
  EXPECT_EQ(profile.layers[0].output_bytes, (std::vector<std::int64_t>{70}));
  ASSERT_EQ(profile.edges.size(), 1U);
  EXPECT_EQ(profile.edges[0].source, 0);
  EXPECT_EQ(profile.edges[0].target, 1);
  EXPECT_NO_THROW(validate(profile, "file"));
}

TEST(DnnPartitioning, MutatedFilesGiveAnErrorOrAPlan) {
  std::mt19937_64 random(1);
  int plans = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = RandomGraph(static_cast<std::uint64_t>(i)).json();
    static const std::string characters = "0123456789-.e{}[]\",:an";
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) text[random() % text.size()] = characters[random() % characters.size()];
    try {
      EXPECT_TRUE(std::isfinite(plan_dnn_partitioning(text, "mutated", {}).predicted.period_ms)) << text;
      validate(read_dnn_partitioning(text, "mutated").profile, "mutated");
      ++plans;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(plans, 100);
}

TEST(DnnPartitioning, BrokenFilesNameThePlace) {
  expect_golden_errors(std::string(PIPEDREAM_SOURCE_DIR) + "/tests/plan/broken_dnn_partitioning.golden", 15,
                       [](const std::string& text) { (void)plan_dnn_partitioning(text, "file", {}); });
}

}  // namespace
}  // namespace pipedream
