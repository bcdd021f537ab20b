#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/search.hpp"
#include "pipedream/plan/stage_visitor.hpp"

namespace pipedream {
namespace {

// Best way to place everything above a cut with the devices of a label (and, where stages are counted, that many stages).
struct Entry {
  double fill_ms = std::numeric_limits<double>::infinity(), traffic = 0;
  int stages = 0;
  int high = -1, from = -1;  // the stage just above the cut: up to `high`, which was at entry `from`
  int setting = -1;
  bool recompute = false;
  [[nodiscard]] bool reached() const { return stages > 0 || from == -2; }
};

bool better(double fill, int stages, double traffic, const Entry& than) {
  if (!than.reached()) return true;
  if (fill != than.fill_ms) return fill < than.fill_ms;
  if (stages != than.stages) return stages < than.stages;
  return traffic < than.traffic;
}

// Load and memory of one stage under one setting, worked out when first asked for.
struct StageCost {
  std::int64_t stamp = -1;
  double load[2] = {0, 0}, fill[2] = {0, 0}, traffic = 0;
};

class LabelSearch {
 public:
  LabelSearch(const SearchSpace& space, double threshold, SearchBudget& budget)
      : space_(space), layout_(*space.layout), cost_(*space.cost), threshold_(threshold), budget_(budget), floor_(space), below_(*space.cuts) {
    const int stages = space.exact_stages > 0 ? space.exact_stages : space.max_stages;
    depth_ = stages > 0 ? stages + 1 : 1;
    tables_.resize(static_cast<std::size_t>(space.cuts->size()));
    missing_.assign(static_cast<std::size_t>(space.cuts->size()), layout_.labels * depth_);
    costs_.resize(layout_.settings.size());
    for (const StageSetting& setting : layout_.settings) limits_.push_back(cost_.memory_limit(setting));
    work_.resize(static_cast<std::size_t>(space.cuts->num_measurements()));
  }

  std::optional<Found> run() {
    const int top = space_.cuts->size() - 1;
    table(top)[0] = {0, 0, 0, -1, -2, -1, false};
    for (int high = top; high > 0; --high) {
      if (tables_[static_cast<std::size_t>(high)].empty()) continue;
      collect_labels(high);
      if (labels_.empty()) continue;
      below_.for_each(high, [&](int low) { return visit(low, high); });
      if (budget_.exhausted()) return std::nullopt;
    }
    return best();
  }

 private:
  std::vector<Entry>& table(int cut) {
    auto& entries = tables_[static_cast<std::size_t>(cut)];
    if (entries.empty()) entries.resize(static_cast<std::size_t>(layout_.labels) * static_cast<std::size_t>(depth_));
    return entries;
  }

  void collect_labels(int high) {
    labels_.clear();
    most_capacity_ = 0;
    const auto& entries = tables_[static_cast<std::size_t>(high)];
    const double least = floor_.least_capacity(space_.cuts->sum(high), threshold_);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (!entries[i].reached()) continue;
      const auto label = i / static_cast<std::size_t>(depth_);
      if (layout_.capacity[label] < least) continue;
      labels_.push_back(static_cast<int>(i));
      most_capacity_ = std::max(most_capacity_, layout_.capacity[label]);
    }
    most_capacity_ = std::min(most_capacity_, floor_.most_stage_capacity());
  }

  bool visit(int low, int high) {
    ++budget_.states;
    if (budget_.exhausted()) return false;
    space_.cuts->stage_work(low, high, work_.data());
    if (!floor_.may_keep(work_.data(), threshold_, most_capacity_) || !floor_.weights_fit(work_.data())) return false;
    rest_ = floor_.least_capacity(space_.cuts->sum(low), threshold_);
    if (space_.any_plan && nothing_new(low)) return true;
    sum_ = space_.cuts->stage_flows(low, high, work_.data());
    const double least = std::ceil(floor_.devices_needed(work_.data(), threshold_) * (1 - 1e-9));
    for (const int index : labels_) {
      const int label = index / depth_, stages = index % depth_;
      if (depth_ > 1 && stages + 1 >= depth_ && !(stages + 1 == depth_ - 1 || stages + 1 < depth_)) continue;
      if (depth_ > 1 && stages + 1 > depth_ - 1) continue;
      if (space_.any_plan && depth_ == 1 && !tables_[static_cast<std::size_t>(low)].empty() && all_reached(low, label)) continue;
      const auto& takes = layout_.takes(label);
      auto take = takes.begin();
      if (least > 1)
        take = std::lower_bound(takes.begin(), takes.end(), least, [&](const Take& t, double replicas) {
          return layout_.settings[static_cast<std::size_t>(t.setting)].replicas < replicas;
        });
      for (; take != takes.end(); ++take) try_take(low, high, index, *take);
    }
    return true;
  }

  void try_take(int low, int high, int index, const Take& take) {
    ++budget_.tries;
    if (low == 0 ? !layout_.is_final(take.next, space_.fewer_devices) : layout_.capacity[static_cast<std::size_t>(take.next)] < rest_) return;
    const int stages = depth_ > 1 ? index % depth_ + 1 : 0;
    const std::size_t target = static_cast<std::size_t>(take.next) * static_cast<std::size_t>(depth_) + static_cast<std::size_t>(stages);
    if (space_.any_plan) {
      const auto& known = tables_[static_cast<std::size_t>(low)];
      if (!known.empty() && known[target].reached()) return;
    }
    const StageSetting& setting = layout_.settings[static_cast<std::size_t>(take.setting)];
    if (!space_.shape.empty()) {  // stages are placed from the last one on
      const auto placed = static_cast<std::size_t>(index % depth_);
      if (placed >= space_.shape.size() || setting.replicas != space_.shape[space_.shape.size() - 1 - placed]) return;
    }
    StageCost& cost = costs_[static_cast<std::size_t>(take.setting)];
    if (cost.stamp != budget_.states) fill_cost(cost, setting);
    for (int recompute = space_.must_recompute ? 1 : 0; recompute <= (space_.may_recompute ? 1 : 0); ++recompute) {
      if (!(cost.load[recompute] <= threshold_)) return;  // recomputing only takes longer
      if (!fits(setting, take, recompute == 1)) continue;
      const Entry from = tables_[static_cast<std::size_t>(high)][static_cast<std::size_t>(index)];
      Entry& to = table(low)[target];
      if (!to.reached()) --missing_[static_cast<std::size_t>(low)];
      const double fill = from.fill_ms + cost.fill[recompute], traffic = from.traffic + cost.traffic;
      if (better(fill, from.stages + 1, traffic, to)) to = {fill, traffic, from.stages + 1, high, index, take.setting, recompute == 1};
      return;
    }
  }

  // Every label that a plan could go on from at this cut is known already.
  bool nothing_new(int low) {
    if (missing_[static_cast<std::size_t>(low)] == 0) return true;
    if (depth_ > 1 || tables_[static_cast<std::size_t>(low)].empty()) return false;
    return all_reached(low, labels_.front());
  }
  bool all_reached(int low, int above) const {
    const auto& known = tables_[static_cast<std::size_t>(low)];
    for (int next = above + 1; next < layout_.labels; ++next) {
      if (known[static_cast<std::size_t>(next)].reached()) continue;
      if (low == 0 ? layout_.is_final(next, space_.fewer_devices)
                   : layout_.capacity[static_cast<std::size_t>(next)] >= rest_ && next < layout_.labels - 1)
        return false;
    }
    return true;
  }

  void fill_cost(StageCost& cost, const StageSetting& setting) {
    cost.stamp = budget_.states;
    for (int recompute = space_.must_recompute ? 1 : 0; recompute <= (space_.may_recompute ? 1 : 0); ++recompute) {
      const StageTime time = cost_.time(sum_, setting, recompute == 1);
      cost.load[recompute] = time.load_ms;
      cost.fill[recompute] = time.fill_ms;
    }
    cost.traffic = cost_.traffic_bytes(sum_, setting);
  }

  bool fits(const StageSetting& setting, const Take& take, bool recompute) {
    const std::int64_t limit = limits_[static_cast<std::size_t>(take.setting)];
    if (limit == std::numeric_limits<std::int64_t>::max()) return true;
    const InFlight in_flight = (*space_.in_flight)({setting.replicas, layout_.used[static_cast<std::size_t>(take.next)]});
    return cost_.memory_bytes(sum_, setting, in_flight, recompute) <= limit;
  }

  std::optional<Found> best() {
    const auto& entries = tables_.front();
    int chosen = -1;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const Entry& entry = entries[i];
      if (!entry.reached() || !layout_.is_final(static_cast<int>(i) / depth_, space_.fewer_devices)) continue;
      if (space_.exact_stages > 0 && entry.stages != space_.exact_stages) continue;
      if (chosen < 0 || better(entry.fill_ms, entry.stages, entry.traffic, entries[static_cast<std::size_t>(chosen)])) chosen = static_cast<int>(i);
    }
    if (chosen < 0) return std::nullopt;
    return trace(chosen);
  }

  Found trace(int index) {
    // On the way an entry's place stands for its label.
    Found found = follow(space_, index, [&](int cut, int at) {
      const Entry& entry = tables_[static_cast<std::size_t>(cut)][static_cast<std::size_t>(at)];
      return FoundStage{cut, entry.high, {at / depth_, entry.setting}, entry.from, entry.recompute};
    });
    for (FoundStage& stage : found.stages) stage.label /= depth_;
    return found;
  }

  const SearchSpace& space_;
  const DeviceLayout& layout_;
  const CostModel& cost_;
  double threshold_;
  SearchBudget& budget_;
  StageFloor floor_;
  CutsBelow below_;
  int depth_ = 1;
  std::vector<std::vector<Entry>> tables_;
  std::vector<int> missing_;  // per cut: entries not reached
  std::vector<StageCost> costs_;
  std::vector<std::int64_t> limits_;
  std::vector<Work> work_;
  StageSum sum_;
  std::vector<int> labels_;
  double most_capacity_ = 0, rest_ = 0;  // of the labels; at least left for the work below the cut in hand
};

}  // namespace

std::optional<Found> search_labels(const SearchSpace& space, double threshold_ms, SearchBudget& budget) {
  return LabelSearch(space, threshold_ms, budget).run();
}

}  // namespace pipedream
