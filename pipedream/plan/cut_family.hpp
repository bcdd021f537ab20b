#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pipedream/plan/cost_model.hpp"
#include "pipedream/plan/work_graph.hpp"

namespace pipedream {

/// The places where a graph may be cut: sets of nodes that hold all predecessors of their members (ideals), smallest first, from the empty set to
/// the set of all. A stage is the difference of two sets of which one holds the other. Either all ideals, or the prefixes of one order.
class CutFamily {
 public:
  /// All ideals, nothing if there are more than `limit`.
  /// @param work per measurement the work of each node
  [[nodiscard]] static std::optional<CutFamily> all(const WorkGraph& graph, const std::vector<std::vector<Work>>& work, std::int64_t limit);
  /// The prefixes of a topological order.
  [[nodiscard]] static CutFamily prefixes(const WorkGraph& graph, const std::vector<std::vector<Work>>& work, const std::vector<int>& order);

  [[nodiscard]] int size() const { return static_cast<int>(below_begin_.size()) - 1; }
  [[nodiscard]] bool is_chain() const { return chain_; }
  [[nodiscard]] int num_measurements() const { return measurements_; }
  /// Per measurement the work of a set.
  [[nodiscard]] const Work* sum(int cut) const { return &sums_[static_cast<std::size_t>(cut) * static_cast<std::size_t>(measurements_)]; }
  /// Bytes of the flows with members on both sides of a cut.
  [[nodiscard]] std::int64_t split_bytes(int cut) const { return split_bytes_[static_cast<std::size_t>(cut)]; }
  /// Sets that have one node less.
  [[nodiscard]] std::span<const int> below(int cut) const {
    const auto c = static_cast<std::size_t>(cut);
    return {below_.data() + below_begin_[c], below_begin_[c + 1] - below_begin_[c]};
  }
  [[nodiscard]] bool contains(int cut, int node) const {
    return (bits(cut)[static_cast<std::size_t>(node) / 64] >> (static_cast<unsigned>(node) % 64) & 1U) != 0;
  }
  [[nodiscard]] bool contains(int cut, const CutFamily& other, int other_cut) const;

  /// Adds up the stage between two cuts, `low` inside `high`. @param work room for one Work per measurement
  [[nodiscard]] StageSum stage(int low, int high, Work* work) const;
  /// Its two halves: the work, which is quick, and the bytes, which take longer.
  void stage_work(int low, int high, Work* work) const {
    for (int k = 0; k < measurements_; ++k) work[k] = sum(high)[k] - sum(low)[k];
  }
  [[nodiscard]] StageSum stage_flows(int low, int high, const Work* work) const;
  /// Nodes of that stage, ascending.
  [[nodiscard]] std::vector<int> nodes(int low, int high) const;

 private:
  // A flow as a set of nodes: source and targets.
  struct Members {
    std::vector<int> nodes;
    std::int64_t bytes = 0;
  };

  explicit CutFamily(const WorkGraph& graph);
  [[nodiscard]] const std::uint64_t* bits(int cut) const { return &bits_[static_cast<std::size_t>(cut) * words_]; }
  /// @param below  per cut the sets that have one node less
  void finish(const std::vector<std::vector<int>>& below, const std::vector<std::vector<Work>>& work);

  std::vector<Members> flows_;
  std::vector<std::vector<int>> flows_of_;  ///< per node
  int nodes_ = 0, measurements_ = 1;
  std::size_t words_ = 1;
  bool chain_ = false;
  std::vector<std::uint64_t> bits_;
  std::vector<int> below_;  ///< of all cuts in one piece: most of the time of a walk goes into reading it
  std::vector<std::size_t> below_begin_;
  std::vector<Work> sums_;
  std::vector<std::int64_t> split_bytes_;  ///< per cut, of the flows with members on both sides
  std::vector<std::vector<int>> split_;    ///< those flows
};

}  // namespace pipedream
