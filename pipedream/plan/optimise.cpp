#include "pipedream/plan/optimise.hpp"

#include <algorithm>
#include <cmath>

#include "pipedream/plan/stage_visitor.hpp"

namespace pipedream {
namespace {

using Test = std::function<std::optional<Found>(double)>;

constexpr std::int64_t kMostTidying = 30'000'000;  // tries: a fraction of a second
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The smallest threshold with a plan. `floor` is below it; if `below` is finite only smaller thresholds count.
struct Smallest {
  std::optional<Found> found;
  double infeasible_ms = 0;  // thresholds up to this have no plan
};

Smallest smallest_threshold(const Test& test, double floor, double below, const SearchBudget& budget) {
  Smallest result;
  result.infeasible_ms = just_below(floor);
  double high = kInfinity;  // load of the best plan so far
  const auto try_at = [&](double threshold) {
    std::optional<Found> found = test(threshold);
    if (found && found->largest_load_ms < high) {
      high = found->largest_load_ms;
      result.found = std::move(found);
      return true;
    }
    if (!budget.exhausted()) result.infeasible_ms = std::max(result.infeasible_ms, threshold);
    return false;
  };
  if (std::isfinite(below) && (below <= floor || !try_at(just_below(below)))) return result;
  for (double step = 0.01; high == kInfinity && !budget.exhausted(); step *= 2) {
    const double threshold = step > 1e6 || floor == 0 ? kInfinity : std::max(floor, result.infeasible_ms) * (1 + step);
    if (!try_at(threshold) && threshold == kInfinity) return result;
  }
  while (!budget.exhausted() && result.infeasible_ms < just_below(high)) {
    const double low = std::max(result.infeasible_ms, 0.0);
    const double middle = low + (high - low) / 2;
    // Halve while the interval is wide; near the end ask for the certificate itself.
    (void)try_at(high - low > 1e-3 * high && middle < high ? middle : just_below(high));
  }
  return result;
}

double floor_of(const SearchSpace& space) {
  if (space.cost->form != CostForm::Steady) return 0;
  const Work& all = *space.cuts->sum(space.cuts->size() - 1);
  const double ms = static_cast<double>(all.compute_ps() + (space.must_recompute ? all.forward_ps : 0)) * 1e-9;
  return ms / space.layout->capacity.front() * (1 - 1e-9);
}

// The plan with the fewest stages and the least traffic among those that keep a threshold.
struct Tidied {
  std::optional<Found> found;
  bool too_large = false;  // it takes too long to go over them all
};

Tidied tidied(const SearchSpace& space, double threshold_ms, SearchBudget& budget) {
  if (budget.exhausted()) return {std::nullopt, true};
  SearchBudget own{budget.states, budget.most_states, 0, kMostTidying};
  Tidied result{search_labels(space, threshold_ms, own), false};
  budget.states = std::min(own.states, budget.most_states);  // what this did not finish takes nothing from the proof
  result.too_large = own.exhausted();
  return result;
}

Optimum optimise_steady(const SearchSpace& space, double better_than, SearchBudget& budget) {
  const bool fewest = space.layout->form == DeviceLayout::Form::Uniform && space.max_stages == 0 && space.exact_stages == 0;
  SearchSpace quick = space;
  quick.any_plan = true;
  const bool reachable = can_search_reachable(quick);
  const Test any = [&](double threshold) { return reachable ? search_reachable(quick, threshold, budget) : search_labels(quick, threshold, budget); };
  const Test relaxed = [&](double threshold) { return search_fewest_devices(space, threshold, budget); };
  double floor = floor_of(space);
  Optimum result;
  if (fewest) {  // devices may stay idle here: a lower bound for the plans that use all of them
    const Smallest smallest = smallest_threshold(relaxed, floor, better_than, budget);
    result.bound_ms = smallest.infeasible_ms;
    if (!smallest.found) {
      result.certified = !budget.exhausted();
      return result;
    }
    floor = smallest.found->largest_load_ms;
    const bool listed = !space.layout->takes(0).empty();
    // Among the plans with this period the one with the fewest stages and the least traffic, and all devices in use.
    bool large = !listed;
    if (listed) {
      auto tidy = tidied(space, floor, budget);
      if (tidy.found) {
        result.found = std::move(tidy.found);
        result.period_ms = result.bound_ms = result.found->largest_load_ms;
        result.certified = !budget.exhausted();
        return result;
      }
      large = tidy.too_large;
    }
    if (large) {  // the plan found stands, with all devices if need be
      result.found = space.fewer_devices ? smallest.found : use_all_devices(space, floor, *smallest.found);
      if (!result.found && !listed) {  // a plan that is a little slower may have use for all, one stage has for sure
        SearchBudget more{0, budget.most_states};
        const Test padded = [&](double threshold) {
          std::optional<Found> found = search_fewest_devices(space, threshold, more);
          return found ? use_all_devices(space, threshold, *found) : found;
        };
        result.found = smallest_threshold(padded, floor, better_than, more).found;
        budget.states += more.states;
      }
      if (result.found) {
        result.period_ms = result.found->largest_load_ms;
        result.certified = result.period_ms <= floor && !budget.exhausted();
        return result;
      }
      if (!listed) return result;
    }
  }
  const Smallest smallest = smallest_threshold(any, floor, better_than, budget);
  result.found = smallest.found;
  result.certified = !budget.exhausted();
  // Once more for the fewest stages and the least traffic; if that is too much work, the plan found is as fast.
  if (result.found && result.certified && !space.any_plan)
    if (auto tidy = tidied(space, smallest.found->largest_load_ms, budget); tidy.found) result.found = std::move(tidy.found);
  if (result.found) result.period_ms = result.found->largest_load_ms;
  result.bound_ms = result.certified && result.found ? result.period_ms : smallest.infeasible_ms;
  return result;
}

Optimum optimise_flush(const SearchSpace& space, double better_than, SearchBudget& budget) {
  const Test labels = [&](double threshold) { return search_labels(space, threshold, budget); };
  const double scale = space.cost->micro_batches;
  Optimum result;
  double best = better_than * scale;
  const auto consider = [&](std::optional<Found>& found) {
    if (!found || !(found->largest_load_ms + found->fill_ms < best)) return;
    best = found->largest_load_ms + found->fill_ms;
    result.found = found;
  };
  std::optional<Found> free = labels(kInfinity);  // the smallest fill there is
  if (!free) {
    result.certified = !budget.exhausted();
    result.bound_ms = result.certified ? kInfinity : 0;
    return result;
  }
  const double least_fill = free->fill_ms;
  consider(free);
  const Smallest smallest = smallest_threshold(labels, 0, kInfinity, budget);
  double fill = least_fill;
  if (smallest.found) {
    auto found = labels(smallest.found->largest_load_ms);
    consider(found);
    // Larger loads pay only with less fill than what is known at smaller ones.
    double threshold = just_below(best - fill);
    while (threshold >= smallest.found->largest_load_ms && !budget.exhausted()) {
      auto next = labels(threshold);
      if (!next) break;
      fill = next->fill_ms;
      consider(next);
      // Plans with loads between the one found and the threshold have no less fill than it.
      threshold = std::min(just_below(best - fill), just_below(next->largest_load_ms));
    }
  }
  result.certified = !budget.exhausted();
  if (result.found) result.period_ms = best / scale;
  result.bound_ms = result.certified && result.found ? result.period_ms : (least_fill + std::max(0.0, smallest.infeasible_ms)) / scale;
  return result;
}

// Low thresholds cost little to refute where the one just below the best plan costs more than there is: a gap told from them is a smaller one.
double refuted(const SearchSpace& space, double below, SearchBudget& budget) {
  const bool fewest = space.layout->form == DeviceLayout::Form::Uniform && space.max_stages == 0 && space.exact_stages == 0;
  SearchSpace quick = space;
  quick.any_plan = true;
  const double floor = floor_of(space);
  double bound = 0;
  for (const double share : {0.25, 0.5, 0.75}) {
    const double threshold = floor + share * (below - floor);
    const auto found = fewest                        ? search_fewest_devices(quick, threshold, budget)
                       : can_search_reachable(quick) ? search_reachable(quick, threshold, budget)
                                                     : search_labels(quick, threshold, budget);
    if (found || budget.exhausted()) break;
    bound = threshold;
  }
  return bound;
}

}  // namespace

Optimum optimise(const SearchSpace& space, double better_than_ms, SearchBudget& budget) {
  if (space.cost->form != CostForm::Steady) return optimise_flush(space, better_than_ms, budget);
  // A share of the work is kept for a bound, should the search not come to its end.
  const std::int64_t kept = space.cuts->is_chain() || budget.exhausted() ? 0 : (budget.most_states - budget.states) / 8;
  budget.most_states -= kept;
  Optimum result = optimise_steady(space, better_than_ms, budget);
  budget.most_states += kept;
  if (const double best = std::min(better_than_ms, result.period_ms); !result.certified && kept > 0 && std::isfinite(best))
    result.bound_ms = std::max(result.bound_ms, refuted(space, best, budget));
  return result;
}

}  // namespace pipedream
