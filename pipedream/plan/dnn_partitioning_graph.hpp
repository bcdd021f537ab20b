#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/plan/work_graph.hpp"

namespace pipedream {

inline constexpr double kDnnUnitsPerMs = 1e9;  ///< times and transfer costs alike: picoseconds

/// A graph of the project dnn-partitioning as its file has it.
struct DnnNode {
  std::int64_t id = 0, color = -1;
  double cpu_ms = 0, accelerator_ms = 0, bytes = 0;
  bool backward = false;
};

struct DnnGraph {
  std::vector<DnnNode> nodes;
  std::vector<std::pair<int, int>> edges;
  std::vector<double> transfer_ms;   ///< per node, of its output; below 0: nobody reads it
  std::vector<double> output_bytes;  ///< per node
  int accelerators = 0, cpus = 0;
  double memory_bytes = 0;
};

/// @throws InputError with file and JSON pointer
[[nodiscard]] DnnGraph read_dnn_graph(const std::string& text, const std::string& file);

/// Whether leaves, classes without latency and with one neighbour, lie with that neighbour. No split is better with the two apart but for the leaf's
/// size, and every leaf doubles the cuts of what is beside it.
enum class DnnLeaves { Apart, MergedIfWeightless, Merged };

/// Which class each node belongs to: its colour, then everything that lies on a cycle of the forward parts of the classes.
class DnnClasses {
 public:
  DnnClasses(const DnnGraph& graph, DnnLeaves leaves);
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] int of(int node) const { return of_[static_cast<std::size_t>(node)]; }
  /// Was merged as a leaf.
  [[nodiscard]] bool is_leaf(int node) const { return leaf_[static_cast<std::size_t>(node)] != 0; }
  /// Which class must lie on the device of another or before it.
  [[nodiscard]] const std::set<std::pair<int, int>>& edges() const { return edges_; }

 private:
  [[nodiscard]] std::set<std::pair<int, int>> precedence(const DnnGraph& graph) const;
  [[nodiscard]] std::set<std::pair<int, int>> leaf_pairs(const DnnGraph& graph, DnnLeaves leaves);
  void merge(const std::set<std::pair<int, int>>& edges);

  std::vector<int> of_;
  std::vector<char> leaf_;
  int count_ = 0;
  std::set<std::pair<int, int>> edges_;
};

/// Classes as nodes with the work of an accelerator; bytes of flows are picoseconds.
[[nodiscard]] WorkGraph work_graph_of(const DnnGraph& graph, const DnnClasses& classes);
/// The same nodes' work on a CPU.
[[nodiscard]] std::vector<Work> cpu_work(const DnnGraph& graph, const WorkGraph& work);

}  // namespace pipedream
