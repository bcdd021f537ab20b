#include <algorithm>
#include <bit>
#include <cmath>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/search.hpp"
#include "pipedream/plan/stage_visitor.hpp"

namespace pipedream {
namespace {

using Bits = std::vector<std::uint64_t>;

bool has(const std::uint64_t* bits, int i) { return (bits[i / 64] >> (i % 64) & 1U) != 0; }

// Where a setting can be had: labels it can be taken at, each with the same step to the label after it.
struct Offer {
  int setting = 0, replicas = 0, step = 0;
  Bits labels;
};

// How a label of a cut was reached first.
struct Origin {
  int high = -1, from = -1, setting = -1;
  bool recompute = false;
};

class ReachableSearch {
 public:
  ReachableSearch(const SearchSpace& space, double threshold, SearchBudget& budget)
      : space_(space), layout_(*space.layout), cost_(*space.cost), threshold_(threshold), budget_(budget), floor_(space), below_(*space.cuts) {
    words_ = static_cast<std::size_t>(layout_.labels + 63) / 64;
    const auto cuts = static_cast<std::size_t>(space.cuts->size());
    reached_.assign(cuts * words_, 0);
    origins_.resize(cuts);
    work_.resize(static_cast<std::size_t>(space.cuts->num_measurements()));
    list_offers();
  }

  std::optional<Found> run() {
    const int top = space_.cuts->size() - 1;
    reached(top)[0] = 1;
    for (int high = top; high > 0; --high) {
      if (!collect(high)) continue;
      below_.for_each(high, [&](int low) { return visit(low, high); });
      if (budget_.exhausted()) return std::nullopt;
    }
    for (int label = layout_.labels - 1; label > 0; --label)
      if (has(reached(0), label) && layout_.is_final(label, space_.fewer_devices)) return trace(label);
    return std::nullopt;
  }

 private:
  std::uint64_t* reached(int cut) { return &reached_[static_cast<std::size_t>(cut) * words_]; }

  void list_offers() {
    std::vector<int> offer_of(layout_.settings.size(), -1);
    for (int label = 0; label < layout_.labels; ++label)
      for (const Take& take : layout_.takes(label)) {
        int& at = offer_of[static_cast<std::size_t>(take.setting)];
        if (at < 0) {
          at = static_cast<int>(offers_.size());
          offers_.push_back({take.setting, layout_.settings[static_cast<std::size_t>(take.setting)].replicas, take.next - label, Bits(words_, 0)});
        }
        Offer& offer = offers_[static_cast<std::size_t>(at)];
        PD_CHECK(offer.step == take.next - label);
        offer.labels[static_cast<std::size_t>(label) / 64] |= std::uint64_t{1} << (label % 64);
      }
    std::stable_sort(offers_.begin(), offers_.end(), [](const Offer& a, const Offer& b) { return a.replicas < b.replicas; });
  }

  // The labels of a cut from which the work below may still be done. False if there are none.
  bool collect(int high) {
    const std::uint64_t* from = reached(high);
    const int most = last_label(floor_.least_capacity(space_.cuts->sum(high), threshold_));
    from_.assign(from, from + words_);
    first_ = -1;
    for (int label = 0; label <= most && first_ < 0; ++label)
      if (has(from, label)) first_ = label;
    if (first_ < 0) return false;
    keep_up_to(from_, most);
    most_capacity_ = std::min(layout_.capacity[static_cast<std::size_t>(first_)], floor_.most_stage_capacity());
    return true;
  }

  // Capacity only falls from label to label.
  [[nodiscard]] int last_label(double least_capacity) const {
    const auto end =
        std::partition_point(layout_.capacity.begin(), layout_.capacity.end(), [&](double capacity) { return capacity >= least_capacity; });
    return static_cast<int>(end - layout_.capacity.begin()) - 1;
  }

  static void keep_up_to(Bits& bits, int label) {
    for (std::size_t w = 0; w < bits.size(); ++w) {
      const int first = static_cast<int>(w) * 64;
      if (label < first) bits[w] = 0;
      else if (label < first + 63) bits[w] &= (std::uint64_t{2} << (label - first)) - 1;
    }
  }

  bool visit(int low, int high) {
    ++budget_.states;
    if (budget_.exhausted()) return false;
    space_.cuts->stage_work(low, high, work_.data());
    if (!floor_.may_keep(work_.data(), threshold_, most_capacity_) || !floor_.weights_fit(work_.data())) return false;
    const int most =
        low == 0 ? layout_.labels - 1 : std::min(layout_.labels - 2, last_label(floor_.least_capacity(space_.cuts->sum(low), threshold_)));
    wanted_.assign(words_, 0);
    bool any = false;
    for (std::size_t w = static_cast<std::size_t>(first_ + 1) / 64; w < words_; ++w) wanted_[w] = ~reached(low)[w];
    keep_up_to(wanted_, most);
    if (low == 0 && !space_.fewer_devices) {  // only the label that all devices are in use at
      const bool is_wanted = has(wanted_.data(), layout_.labels - 1);
      wanted_.assign(words_, 0);
      if (is_wanted) wanted_.back() = std::uint64_t{1} << ((layout_.labels - 1) % 64);
    }
    for (const std::uint64_t word : wanted_) any = any || word != 0;
    if (!any) return true;
    sum_ = space_.cuts->stage_flows(low, high, work_.data());
    const double least = std::ceil(floor_.devices_needed(work_.data(), threshold_) * (1 - 1e-9));
    auto offer = std::lower_bound(offers_.begin(), offers_.end(), least, [](const Offer& a, double replicas) { return a.replicas < replicas; });
    const int room = layout_.used[static_cast<std::size_t>(most)] - layout_.used[static_cast<std::size_t>(first_)];
    for (; offer != offers_.end() && offer->replicas <= room; ++offer) take(low, high, *offer);
    return true;
  }

  void take(int low, int high, const Offer& offer) {
    ++budget_.tries;
    // Labels after the take that are wanted, before the dearer question of its cost.
    const auto shift_words = static_cast<std::size_t>(offer.step) / 64;
    const auto shift = static_cast<unsigned>(offer.step) % 64;
    fresh_.assign(words_, 0);
    bool any = false;
    for (std::size_t w = shift_words; w < words_; ++w) {
      const std::size_t source = w - shift_words;
      std::uint64_t word = (from_[source] & offer.labels[source]) << shift;
      if (shift > 0 && source > 0) word |= (from_[source - 1] & offer.labels[source - 1]) >> (64 - shift);
      fresh_[w] = word & wanted_[w];
      any = any || fresh_[w] != 0;
    }
    if (!any) return;
    const StageSetting& setting = layout_.settings[static_cast<std::size_t>(offer.setting)];
    const std::int64_t limit = cost_.memory_limit(setting);
    for (int recompute = space_.must_recompute ? 1 : 0; recompute <= (space_.may_recompute ? 1 : 0); ++recompute) {
      if (!(cost_.time(sum_, setting, recompute == 1).load_ms <= threshold_)) return;  // recomputing only takes longer
      for (std::size_t w = shift_words; w < words_; ++w)
        for (std::uint64_t word = fresh_[w]; word != 0; word &= word - 1) {
          const int next = static_cast<int>(w) * 64 + std::countr_zero(word);
          if (limit != std::numeric_limits<std::int64_t>::max()) {
            const InFlight in_flight = (*space_.in_flight)({setting.replicas, layout_.used[static_cast<std::size_t>(next)]});
            if (cost_.memory_bytes(sum_, setting, in_flight, recompute == 1) > limit) continue;
          }
          reach(low, next, {high, next - offer.step, offer.setting, recompute == 1});
          fresh_[w] &= ~(std::uint64_t{1} << (next % 64));
        }
    }
  }

  void reach(int cut, int label, const Origin& origin) {
    const std::uint64_t bit = std::uint64_t{1} << (label % 64);
    reached(cut)[label / 64] |= bit;
    wanted_[static_cast<std::size_t>(label) / 64] &= ~bit;
    auto& origins = origins_[static_cast<std::size_t>(cut)];
    if (origins.empty()) origins.resize(static_cast<std::size_t>(layout_.labels));
    origins[static_cast<std::size_t>(label)] = origin;
  }

  Found trace(int last) {
    return follow(space_, last, [&](int cut, int label) {
      const Origin& origin = origins_[static_cast<std::size_t>(cut)][static_cast<std::size_t>(label)];
      return FoundStage{cut, origin.high, {label, origin.setting}, origin.from, origin.recompute};
    });
  }

  const SearchSpace& space_;
  const DeviceLayout& layout_;
  const CostModel& cost_;
  double threshold_;
  SearchBudget& budget_;
  StageFloor floor_;
  CutsBelow below_;
  std::size_t words_ = 1;
  std::vector<Offer> offers_;
  std::vector<std::uint64_t> reached_;  // per cut a set of labels
  std::vector<std::vector<Origin>> origins_;
  Bits from_, wanted_, fresh_;
  int first_ = 0;  // of from_
  double most_capacity_ = 0;
  std::vector<Work> work_;
  StageSum sum_;
};

}  // namespace

bool can_search_reachable(const SearchSpace& space) {
  return space.any_plan && space.cost->form == CostForm::Steady && space.layout->form != DeviceLayout::Form::Counted && space.exact_stages == 0 &&
         space.max_stages == 0;
}

std::optional<Found> search_reachable(const SearchSpace& space, double threshold_ms, SearchBudget& budget) {
  PD_CHECK(can_search_reachable(space), "sets of labels do not suit this space");
  return ReachableSearch(space, threshold_ms, budget).run();
}

}  // namespace pipedream
