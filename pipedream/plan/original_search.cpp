#include "pipedream/plan/original_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipedream {
namespace {

constexpr float kUnused = 0;
constexpr double kNone = std::numeric_limits<double>::infinity();

// A(i, j, m) of one level: the best time of the states i .. j on m machines, and how it was reached.
struct Cell {
  double time = kNone;
  int split = -1;    // last state of the part before the last stage; -1: one stage
  int before = 0;    // machines of that part
  int replicas = 0;  // of the last stage
};

class Table {
 public:
  Table(int rows, int states, int machines)
      : states_(states),
        machines_(machines),
        cells_(static_cast<std::size_t>(rows) * static_cast<std::size_t>(states) * static_cast<std::size_t>(machines)) {}
  Cell& at(int i, int j, int m) {
    return cells_[(static_cast<std::size_t>(i) * static_cast<std::size_t>(states_) + static_cast<std::size_t>(j)) *
                      static_cast<std::size_t>(machines_) +
                  static_cast<std::size_t>(m - 1)];
  }
  [[nodiscard]] const Cell& at(int i, int j, int m) const { return const_cast<Table*>(this)->at(i, j, m); }
  [[nodiscard]] int machines() const { return machines_; }

 private:
  int states_, machines_;
  std::vector<Cell> cells_;
};

class Search {
 public:
  Search(const OriginalStates& states, const OriginalOptions& options) : states_(states), options_(options), n_(states.size()) {}

  std::optional<OriginalPlan> run() {
    for (std::size_t level = 0; level < options_.levels.size(); ++level) solve(level, level + 1 == options_.levels.size());
    const int machines = options_.levels.back().machines;
    const Cell& best = tables_.back().at(0, n_ - 1, machines);
    if (best.time == kNone) return std::nullopt;
    OriginalPlan plan;
    plan.time_s = best.time;
    plan.cells = cells_;
    expand(options_.levels.size() - 1, 0, n_ - 1, machines, {0}, plan);
    return plan;
  }

 private:
  [[nodiscard]] double sum(const std::vector<double>& of, int i, int j) const {
    return of[static_cast<std::size_t>(j)] - (i == 0 ? 0 : of[static_cast<std::size_t>(i - 1)]);
  }
  // T_{l-1}(i, j)
  [[nodiscard]] double below(std::size_t level, int i, int j) const {
    return level == 0 ? sum(states_.compute_s, i, j) : tables_[level - 1].at(i, j, tables_[level - 1].machines()).time;
  }
  [[nodiscard]] bool fits(double count, int i, int j) const {
    if (options_.memory_bytes <= 0) return true;
    return count * (sum(states_.activation_bytes, i, j) + sum(states_.parameter_bytes, i, j)) <= options_.memory_bytes;
  }
  // Compute and synchronisation of one stage; `inside` divides the synchronisation of first stages in the code.
  [[nodiscard]] double stage_time(std::size_t level, int i, int j, int m, double inside) const {
    const double compute = below(level, i, j), parameters = sum(states_.parameter_bytes, i, j), bandwidth = options_.levels[level].bandwidth;
    if (options_.printed_formula) return std::max(compute, 2.0 * (m - 1) * parameters / bandwidth) / m;
    return (compute + 4.0 * (m - 1) * parameters / (bandwidth * m) / inside) / m;
  }

  void solve(std::size_t level, bool top) {
    const int machines = options_.levels[level].machines;
    const double inside = level == 0 ? 1 : options_.levels[level - 1].machines;
    tables_.emplace_back(top ? 1 : n_, n_, machines);
    Table& table = tables_.back();
    for (int i = 0; i < (top ? 1 : n_); ++i)
      for (int j = i; j < n_; ++j)
        for (int m = 1; m <= (options_.straight ? 1 : machines); ++m) {
          if (!fits(std::ceil(static_cast<double>(machines - m) / m), i, j) || below(level, i, j) == kNone) continue;
          table.at(i, j, m) = {stage_time(level, i, j, m, inside), -1, 0, m};
        }
    for (int i = 0; i < (top ? 1 : n_); ++i)
      for (int m = 2; m <= machines; ++m)
        for (int j = i + 1; j < n_; ++j) split(level, table, i, j, m);
  }

  void split(std::size_t level, Table& table, int i, int j, int m) {
    Cell best = table.at(i, j, m);
    if (options_.fewer_machines && table.at(i, j, m - 1).time < best.time) best = table.at(i, j, m - 1);
    const auto& before = states_.before[static_cast<std::size_t>(j)];
    const auto* excluded = i > 0 ? &states_.before[static_cast<std::size_t>(i - 1)] : nullptr;
    for (auto at = std::lower_bound(before.begin(), before.end(), i); at != before.end(); ++at) {
      const int k = *at;
      if (excluded != nullptr && std::binary_search(excluded->begin(), excluded->end(), k)) continue;
      if (below(level, k + 1, j) == kNone) continue;
      for (int replicas = 1; replicas <= (options_.straight ? 1 : m - 1); ++replicas) {
        ++cells_;
        const double earlier = table.at(i, k, m - replicas).time;
        if (!(earlier < best.time)) continue;
        const double time = std::max({earlier, stage_time(level, k + 1, j, replicas, 1), transfer(level, k, j, replicas)});
        if (!(time < best.time) || !fits(std::ceil(static_cast<double>(options_.levels[level].machines - m) / replicas), k + 1, j)) continue;
        best = {time, k, m - replicas, replicas};
      }
    }
    table.at(i, j, m) = best;
  }

  [[nodiscard]] double transfer(std::size_t level, int k, int j, int replicas) const {
    double bytes = states_.output_bytes[static_cast<std::size_t>(k)];
    if (j < n_ - 1) bytes = std::max(bytes, states_.output_bytes[static_cast<std::size_t>(j)]);
    const double once = 2 * bytes / options_.levels[level].bandwidth;
    if (options_.printed_formula) return once;
    return options_.compression ? once / replicas / *options_.compression : kUnused;
  }

  // Devices of one machine of a level.
  [[nodiscard]] int devices_in(std::size_t level) const {
    int devices = 1;
    for (std::size_t l = 0; l < level; ++l) devices *= options_.levels[l].machines;
    return devices;
  }

  // The stages of the states i .. j on m machines of a level, once in each of the groups of machines that begin at these devices.
  void expand(std::size_t level, int i, int j, int m, const std::vector<int>& starts, OriginalPlan& plan) {
    const Cell& cell = tables_[level].at(i, j, m);
    if (cell.split >= 0) expand(level, i, cell.split, cell.before, starts, plan);
    const int first = cell.split < 0 ? i : cell.split + 1;
    std::vector<int> own;
    for (const int start : starts)
      for (int r = 0; r < cell.replicas; ++r) own.push_back(start + (cell.before + r) * devices_in(level));
    if (level == 0) {
      plan.stages.push_back({first, j, own, stage_time(0, first, j, cell.replicas, 1)});
    } else {
      expand(level - 1, first, j, options_.levels[level - 1].machines, own, plan);
    }
  }

  const OriginalStates& states_;
  const OriginalOptions& options_;
  int n_;
  std::vector<Table> tables_;
  std::int64_t cells_ = 0;
};

}  // namespace

std::optional<OriginalPlan> search_original(const OriginalStates& states, const OriginalOptions& options) { return Search(states, options).run(); }

double original_data_parallel_s(const OriginalStates& states, const OriginalOptions& options) {
  double time = states.compute_s.back(), inside = 1;
  for (const OriginalLevel& level : options.levels) {
    const double n = level.machines;
    time = (time + 4 * (n - 1) * states.parameter_bytes.back() / (level.bandwidth * n) / inside) / n;
    inside = n;
  }
  return time;
}

}  // namespace pipedream
