#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "pipedream/plan/piper_work.hpp"

namespace pipedream {

/// Which layers of a stage recompute, exactly: the least extra time that makes the stage fit its memory.
///
/// A knapsack with alternatives. Bounds decide nearly always: layers taken by price (time per byte saved) with the last one in part are a lower
/// bound, with the last one in whole an upper one. Only a limit between the two needs the search, over the layers in that order with the set of
/// (saved, extra) that nothing else beats, where what cannot become good enough by the lower bound is dropped.
class PiperRecompute {
 public:
  /// The layers of `work` on one of its degrees with y samples in flight.
  PiperRecompute(const PiperWork& work, std::size_t degree, int in_flight);

  /// What a byte saved costs at least.
  [[nodiscard]] double best_price() const { return groups_.empty() ? 1e300 : groups_.front().price; }

  /// Variants to use instead of the fastest, as (node, variant), that save `need` bytes for at most `budget`; nothing if there are none.
  /// @param in_stage node -> whether the stage has it
  template <typename InStage>
  [[nodiscard]] std::optional<std::vector<std::pair<int, int>>> choose(std::int64_t need, std::int64_t budget, InStage&& in_stage) {
    stage_.clear();
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (in_stage(groups_[g].node)) stage_.push_back(static_cast<int>(g));
    return choose_from_stage(need, budget);
  }

 private:
  struct Item {
    int variant = 0;
    std::int64_t extra = 0, saved = 0;
  };
  struct Group {
    int node = 0;
    double price = 0;             // of its cheapest item, per byte
    std::int64_t most_saved = 0;  // by one of them
    std::vector<Item> items;      // most saved first
  };
  // A set of items, as the last one and the set before it.
  struct State {
    std::int64_t saved = 0, extra = 0;
    int before = -1, group = -1, item = -1;
  };

  [[nodiscard]] std::optional<std::vector<std::pair<int, int>>> choose_from_stage(std::int64_t need, std::int64_t budget);
  [[nodiscard]] double bound(std::size_t from, std::int64_t need) const;
  [[nodiscard]] std::vector<std::pair<int, int>> trace(const State& state) const;
  void keep_best(std::vector<State>& states) const;

  std::vector<Group> groups_;  // cheapest first
  std::vector<int> stage_;
  std::vector<double> saved_until_, extra_until_;  // over stage_, before each entry
  std::vector<State> arena_;
};

}  // namespace pipedream
