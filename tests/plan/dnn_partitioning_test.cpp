#include "pipedream/plan/dnn_partitioning.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "pipedream/core/file.hpp"

namespace pipedream {
namespace {

const std::filesystem::path kInputs = "../shared/data/planner/dnn-partitioning/throughput-inputs";

struct Row {
  const char* file;
  double with_cpu, without_cpu;  // 0: not given
  bool slow;
};

// Contiguous optima of planner.md section 2.1, measured there with the authors' code; PIPEDREAM_SLOW_TESTS=1 adds the large graphs.
TEST(DnnPartitioning, EqualsTheTableOfContiguousOptima) {
  if (!std::filesystem::exists(kInputs)) GTEST_SKIP() << kInputs << " is absent";
  const std::vector<Row> rows{{"LayerGraphs/bert24_inference.json", 17.789906, 17.789906, false},
                              {"LayerGraphs/bert24_training.json", 41.745812, 41.745812, false},
                              {"LayerGraphs/resnet50_inference.json", 33.774666, 34.222852, false},
                              {"LayerGraphs/resnet50_training.json", 78.631813, 80.454887, false},
                              {"OperatorGraphs/bert_l-3_inference.json", 27.918568, 27.918568, true},
                              {"OperatorGraphs/bert_l-3_training.json", 65.303149, 65.303149, true},
                              {"OperatorGraphs/bert_l-6_inference.json", 29.579506, 33.989102, true},
                              {"OperatorGraphs/bert_L-12_training.json", 437.997638, 437.997638, true},
                              {"OperatorGraphs/resnet50_inference.json", 124.348850, 128.073511, false},
                              {"LayerGraphs/gnmt_inference.json", 32.910658, 32.910658, true},
                              {"LayerGraphs/inceptionv3_inference.json", 51.551864, 52.201632, true}};
  const bool slow = std::getenv("PIPEDREAM_SLOW_TESTS") != nullptr;
  for (const Row& row : rows) {
    if (row.slow && !slow) continue;
    const std::string text = read_file(kInputs / row.file);
    const Plan plan = plan_dnn_partitioning(text, row.file, {});
    if (slow)
      std::cout << row.file << " " << plan.predicted.period_ms << " ms, " << plan.search.seconds << " s, " << plan.search.states << " states"
                << std::endl;
    EXPECT_NEAR(plan.predicted.period_ms, row.with_cpu, 1e-6) << row.file;
    EXPECT_TRUE(plan.predicted.certified) << row.file;
    if (row.without_cpu > 0) {
      EXPECT_NEAR(plan_dnn_partitioning(text, row.file, {-1, 0, -1}).predicted.period_ms, row.without_cpu, 1e-6) << row.file << " without CPU";
    }
  }
}

}  // namespace
}  // namespace pipedream
