#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "pipedream/plan/cut_family.hpp"
#include "pipedream/plan/piper_recompute.hpp"
#include "pipedream/plan/piper_work.hpp"

namespace pipedream {

struct PiperFoundStage {
  std::vector<int> nodes;
  int degree = 1, replicas = 1, in_flight = 1;
  std::vector<int> variants;  ///< per node
  std::int64_t load_times_replicas = 0;
};

/// Whether some split keeps every stage's time at or below a threshold, and one that does: dynamic programming over cuts from the last stage to the
/// first. A label is (devices, replicas) of all later stages; the replicas say how many samples a stage holds in flight. Fewer of both are never
/// worse, so only the labels that no other beats are kept, and a stage of one degree on one label needs only its smallest number of replicas that
/// suits: more take more devices and let earlier stages hold more.
class PiperSearch {
 public:
  PiperSearch(const PiperWork& work, const PiperGraph& graph, const CutFamily& cuts);

  /// First stage first; nothing if no split keeps the threshold.
  [[nodiscard]] std::optional<std::vector<PiperFoundStage>> find(std::int64_t threshold);
  /// No split can keep a smaller one.
  [[nodiscard]] std::int64_t floor() const;
  /// Stages looked at so far.
  [[nodiscard]] std::int64_t states() const { return states_; }

 private:
  struct Label {
    int devices = 0, replicas = 0;  // of all stages above the cut
    int high = -1, before = -1;     // the stage just above: up to this cut, which was at that label
    int degree = 0, stage_replicas = 0;
  };
  struct Sums {
    std::int64_t time = 0, reduce = 0, a_bytes = 0, b_bytes = 0;
  };
  struct Step {
    int cut = 0, node = 0;  // the cut below, and what it lacks
  };

  void add_up();
  [[nodiscard]] const Sums& sums(int cut, std::size_t degree) const { return sums_[static_cast<std::size_t>(cut) * degrees_ + degree]; }
  [[nodiscard]] std::int64_t devices_for(std::int64_t least_work) const;
  void walk(int high);
  void push(int high, std::size_t from, const Step& step);
  bool visit(int low, int high, std::size_t at);
  void try_degree(int low, int high, std::size_t degree, std::int64_t transfer, std::int64_t left_for_low);
  bool fits(int low, int high, std::size_t degree, const Sums& stage, int replicas, int later_replicas, std::int64_t budget);
  [[nodiscard]] bool beaten(int cut, int devices, int replicas) const;
  void insert(int cut, const Label& label);
  [[nodiscard]] PiperRecompute& recompute(std::size_t degree, int in_flight);
  [[nodiscard]] std::vector<PiperFoundStage> trace();
  [[nodiscard]] PiperFoundStage found_stage(int low, const Label& label);
  [[nodiscard]] std::int64_t transfer_of(const std::vector<char>& inside, std::size_t degree) const;

  const PiperWork& work_;
  const PiperGraph& graph_;
  const CutFamily& cuts_;
  std::size_t degrees_;
  std::vector<std::vector<Step>> steps_;
  std::vector<Sums> sums_;                  // [cut][degree]
  std::vector<std::int64_t> least_work_;    // per cut, device time of the cheapest way to run each layer
  std::vector<std::int64_t> least_bytes_;   // per cut, one sample in flight
  std::vector<std::uint64_t> possible_;     // per node, a bit per degree
  std::vector<std::vector<Label>> labels_;  // per cut, by devices
  std::map<std::pair<std::size_t, int>, PiperRecompute> recompute_;
  std::int64_t threshold_ = 0, states_ = 0;

  // The cuts below the one at hand, as they come.
  std::int64_t walks_ = 0;
  std::vector<std::int64_t> seen_;  // per cut the last walk that came to it
  std::vector<int> queue_;
  std::vector<std::uint64_t> queue_possible_;
  std::vector<std::int64_t> queue_transfer_;  // [entry][degree]
};

}  // namespace pipedream
