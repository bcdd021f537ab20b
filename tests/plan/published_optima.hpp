#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pipedream/core/file.hpp"
#include "pipedream/plan/piper.hpp"

/// Optima of other projects' workloads in their own cost models, from the planner research notes: for tests and for the bench that prints them.
namespace pipedream::test {

/// Section 2.1, measured there with the authors' code: contiguous, six decimals are given.
struct DnnOptimum {
  const char* file;  ///< in throughput-inputs, without .json
  double with_cpu, without_cpu;
  const char* theirs;  ///< CPU s / MB of their dp
  bool slow = false;
};
inline const std::vector<DnnOptimum> kDnnOptima{{"LayerGraphs/bert24_inference", 17.789906, 17.789906, "0.00 / 4"},
                                 {"LayerGraphs/bert24_training", 41.745812, 41.745812, "0.00 / 4"},
                                 {"LayerGraphs/gnmt_inference", 32.910658, 32.910658, "17.0 / 549"},
                                 {"LayerGraphs/resnet50_inference", 33.774666, 34.222852, "0.16 / 6"},
                                 {"LayerGraphs/resnet50_training", 78.631813, 80.454887, "0.22 / 6"},
                                 {"LayerGraphs/inceptionv3_inference", 51.551864, 52.201632, "> 330 / 18,500", true},
                                 {"OperatorGraphs/bert_l-3_inference", 27.918568, 27.918568, "1.57 / 29"},
                                 {"OperatorGraphs/bert_l-3_training", 65.303149, 65.303149, "6.75 / 75"},
                                 {"OperatorGraphs/bert_l-6_inference", 29.579506, 33.989102, "4.79 / 57"},
                                 {"OperatorGraphs/bert_L-12_training", 437.997638, 437.997638, "31.4 / 143"},
                                 {"OperatorGraphs/resnet50_inference", 124.348850, 128.073511, "0.18 / 6"}};

/// Section 2.2; nine digits are given. With recomputation chosen exactly two of ResNet are below what Piper's greedy choice reaches.
struct PiperOptimum {
  const char* name;
  const char* file;  ///< without .json
  int more_layers;   ///< copies of the layer before the last transformer layer
  double memory_gib;
  int devices, micro_batches;
  double time;
  const char* theirs;     ///< CPU s / MB
  const char* note = "";  ///< their own optimum where it is worse
};
inline const std::vector<PiperOptimum> kPiperOptima{{"bert32", "bert32a100", 0, 8, 8, 480, 0.16585575, "0.06 / 4"},
                                   {"bert32", "bert32a100", 0, 8, 64, 512, 0.0209573379, "0.22 / 6"},
                                   {"bert32", "bert32a100", 0, 8, 512, 1920, 0.00256112785, "3.9 / 112"},
                                   {"bert32", "bert32a100", 0, 8, 1024, 1920, 0.00130317952, "11.8 / 418"},
                                   {"bert32", "bert32a100", 0, 8, 2048, 1920, 0.000703591184, "60.3 / 1,520"},
                                   {"bert32", "bert32a100", 0, 1, 128, 1920, 0.03887175, "0.32 / 11"},
                                   {"bert32", "bert32a100", 0, 2, 512, 1920, 0.00366752626, "2.5 / 112"},
                                   {"bert32", "bert32a100", 0, 80, 1024, 1920, 0.00115875734, "18.5 / 418"},
                                   {"bert96", "bert32a100", 64, 8, 64, 480, 0.0658230457, "4.7 / 9"},
                                   {"bert96", "bert32a100", 64, 8, 512, 480, 0.00837286695, "27.0 / 251"},
                                   {"bert96", "bert32a100", 64, 8, 1024, 1920, 0.00414268034, "80.6 / 1,006"},
                                   {"gnmt, ms", "gnmt", 0, 1.2, 8, 256, 68.565564, "525 / 203"},
                                   {"resnet, ms", "resnet", 0, 4, 8, 7680, 73.493286, "5.4 / 5"},
                                   {"resnet, ms", "resnet", 0, 2, 32, 7680, 24.0313985, "10.7 / 8", "; Piper: 24.6258985"},
                                   {"resnet, ms", "resnet", 0, 2, 128, 7680, 5.36082032, "", "; Piper: 5.40607819"}};

inline constexpr double kGiB = 1024.0 * 1024 * 1024;

/// The network of all rows is 25 GiB/s, as in Piper's own experiments.
inline PiperOptions options_of(const PiperOptimum& row) {
  PiperOptions options;
  options.memory_bytes = row.memory_gib * kGiB;
  options.devices = row.devices;
  options.micro_batches = row.micro_batches;
  options.bandwidth = 25 * kGiB;
  return options;
}
inline PiperGraph graph_of(const PiperOptimum& row, const std::filesystem::path& folder) {
  const std::string file = folder / (std::string(row.file) + ".json");
  const PiperGraph graph = read_piper(read_file(file), file);
  return row.more_layers > 0 ? repeat_layer(graph, 33, 34, 35, row.more_layers) : graph;
}

}  // namespace pipedream::test
