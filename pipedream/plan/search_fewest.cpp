#include <algorithm>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/search.hpp"
#include "pipedream/plan/stage_visitor.hpp"

namespace pipedream {
namespace {

struct Fewest {
  int devices = std::numeric_limits<int>::max();  // of all stages above the cut
  int high = -1, replicas = 0;
  bool recompute = false;
};

class FewestSearch {
 public:
  FewestSearch(const SearchSpace& space, double threshold, SearchBudget& budget)
      : space_(space),
        layout_(*space.layout),
        cost_(*space.cost),
        threshold_(threshold),
        budget_(budget),
        floor_(space),
        below_(*space.cuts),
        all_(layout_.labels - 1),
        limit_(cost_.memory_limit(layout_.settings.front())),
        best_(static_cast<std::size_t>(space.cuts->size())),
        work_(static_cast<std::size_t>(space.cuts->num_measurements())) {
    // Without latency, and with a step per micro-batch, more replicas than two never make a load larger.
    falling_ = cost_.micro_batches == 1 && layout_.settings.back().reduce[0].latency_ms == 0;
  }

  std::optional<Found> run() {
    const int top = space_.cuts->size() - 1;
    best_.back().devices = 0;
    needed_.resize(static_cast<std::size_t>(space_.cuts->size()));
    for (int cut = 0; cut <= top; ++cut)
      needed_[static_cast<std::size_t>(cut)] =
          static_cast<int>(std::ceil(std::min(1e9, floor_.devices_needed(space_.cuts->sum(cut), threshold_) * (1 - 1e-9))));
    const bool chain = space_.cuts->is_chain();
    if (chain) measure_above();
    for (int high = top; high > 0; --high) {
      const int used = best_[static_cast<std::size_t>(high)].devices;
      if (used == std::numeric_limits<int>::max() || used + std::max(1, needed_[static_cast<std::size_t>(high)]) > all_) continue;
      if (chain) walk_chain(high, used);
      else below_.for_each(high, [&](int low) { return visit(low, high, used); });
      if (budget_.exhausted()) return std::nullopt;
    }
    if (best_.front().devices > all_) return std::nullopt;
    return trace();
  }

 private:
  // Per cut of a chain the devices that the compute above it is worth, those that summing all weights above it would take in one stage at least half,
  // and how many devices more than the compute is worth the best known way uses.
  void measure_above() {
    const auto n = static_cast<std::size_t>(space_.cuts->size());
    compute_above_.resize(n);
    reduce_above_.resize(n);
    known_.assign(n, std::numeric_limits<double>::infinity());
    const double ms_per_byte = layout_.settings.size() < 2 || threshold_ <= 0 ? 0 : layout_.settings[1].reduce[0].ms_per_byte / threshold_;
    for (std::size_t cut = 0; cut < n; ++cut) {
      space_.cuts->stage_work(static_cast<int>(cut), static_cast<int>(n) - 1, work_.data());
      compute_above_[cut] = floor_.devices_needed(work_.data(), threshold_) * (1 - 1e-9);
      reduce_above_[cut] = static_cast<double>(work_[static_cast<std::size_t>(cost_.kinds.front().times)].parameter_bytes) * ms_per_byte * (1 - 1e-9);
    }
    known_.back() = 0;
  }

  // visit(), only where a lower bound of the stage's devices says that it may improve on what is known and leave enough for the rest.
  void walk_chain(int high, int used) {
    const double *compute = compute_above_.data(), *reduce = reduce_above_.data(), *known = known_.data();
    const double compute_high = compute[high], reduce_high = reduce[high], all_compute = compute[0];
    const double free = all_ - used, slack = 1e-6;
    for (int low = high - 1; low >= 0; --low) {
      double devices = compute[low] - compute_high;
      if (devices > free + slack) return;
      if (devices > 1 + slack) {
        // A sum of w bytes by d replicas, 2 (d - 1) / d w / B once per max(m, d) micro-batches, must keep the threshold too: d of them, or m.
        const double sums = reduce[low] - reduce_high;  // with two replicas' share of a ring, w / B
        if (sums > cost_.micro_batches) {
          const double first = std::max(devices, sums);
          devices = std::max(devices, 2 * (first - 1) / first * sums);
        }
      } else {
        devices = 1;
      }
      const double rest = all_compute - compute[low];
      if (devices + std::max(rest, low > 0 ? 1.0 : 0.0) > free + slack || used + devices > known[low] - 1 + slack) continue;
      if (!visit(low, high, used)) return;
      if (best_[static_cast<std::size_t>(low)].high >= 0) known_[static_cast<std::size_t>(low)] = best_[static_cast<std::size_t>(low)].devices;
    }
  }

  bool visit(int low, int high, int used) {
    ++budget_.states;
    if (budget_.exhausted()) return false;
    space_.cuts->stage_work(low, high, work_.data());
    const double least = std::max(1.0, std::ceil(floor_.devices_needed(work_.data(), threshold_) * (1 - 1e-9)));
    const int most = std::min(static_cast<int>(layout_.settings.size()), all_ - used);
    if (least > most || !floor_.weights_fit(work_.data())) return false;
    // Not worth a look unless it uses fewer devices than what is known, and leaves enough for the rest.
    const int target = std::min({most,
                                 best_[static_cast<std::size_t>(low)].devices == std::numeric_limits<int>::max()
                                     ? most
                                     : best_[static_cast<std::size_t>(low)].devices - 1 - used,
                                 all_ - used - std::max(low > 0 ? 1 : 0, needed_[static_cast<std::size_t>(low)])});
    if (least > target) return true;
    sum_ = space_.cuts->stage_flows(low, high, work_.data());
    bool recompute = false;
    const int replicas = smallest(static_cast<int>(least), target, used, recompute);
    if (replicas > 0) best_[static_cast<std::size_t>(low)] = {used + replicas, high, replicas, recompute};
    return true;
  }

  // The smallest number of replicas from `least` to `most` that suits, 0 if none does.
  int smallest(int least, int most, int used, bool& recompute) {
    if (least > most) return 0;
    if (suits(least, used, recompute)) return least;
    if (!falling_) {
      for (int d = least + 1; d <= most; ++d)
        if (suits(d, used, recompute)) return d;
      return 0;
    }
    int low = std::max(least, 1), high = most;  // does not suit at low; does it at high?
    if (low >= high || !suits(high, used, recompute)) return 0;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (suits(middle, used, recompute) ? high : low) = middle;
    }
    (void)suits(high, used, recompute);
    return high;
  }

  bool suits(int replicas, int used, bool& recompute) {
    const StageSetting& setting = layout_.settings[static_cast<std::size_t>(replicas - 1)];
    for (int with = space_.must_recompute ? 1 : 0; with <= (space_.may_recompute ? 1 : 0); ++with) {
      if (!(cost_.time(sum_, setting, with == 1).load_ms <= threshold_)) return false;
      if (limit_ != std::numeric_limits<std::int64_t>::max() &&
          cost_.memory_bytes(sum_, setting, (*space_.in_flight)({replicas, used + replicas}), with == 1) > limit_)
        continue;
      recompute = with == 1;
      return true;
    }
    return false;
  }

  Found trace() {
    return follow(space_, best_.front().devices, [&](int cut, int devices) {
      const Fewest& at = best_[static_cast<std::size_t>(cut)];
      return FoundStage{cut, at.high, {devices, at.replicas - 1}, devices - at.replicas, at.recompute};
    });
  }

  const SearchSpace& space_;
  const DeviceLayout& layout_;
  const CostModel& cost_;
  double threshold_;
  SearchBudget& budget_;
  StageFloor floor_;
  CutsBelow below_;
  int all_;
  std::int64_t limit_;
  bool falling_ = false;
  std::vector<Fewest> best_;
  std::vector<int> needed_;
  std::vector<double> compute_above_, reduce_above_, known_;
  std::vector<Work> work_;
  StageSum sum_;
};

}  // namespace

std::optional<Found> search_fewest_devices(const SearchSpace& space, double threshold_ms, SearchBudget& budget) {
  PD_CHECK(space.layout->form == DeviceLayout::Form::Uniform && space.cost->form == CostForm::Steady, "devices are not uniform");
  return FewestSearch(space, threshold_ms, budget).run();
}

}  // namespace pipedream
