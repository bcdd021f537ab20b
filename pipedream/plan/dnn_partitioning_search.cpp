#include "pipedream/plan/dnn_partitioning_search.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace pipedream {
namespace {

struct From {
  int high = -1;
  bool on_cpu = false;
};

class Search {
 public:
  Search(const CutFamily& cuts, const DnnDevices& devices, std::int64_t below, std::int64_t& states)
      : cuts_(cuts),
        devices_(devices),
        limit_(below),
        states_(states),
        columns_(static_cast<std::size_t>(devices.cpus) + 1),
        labels_(columns_ * (static_cast<std::size_t>(devices.accelerators) + 1)),
        seen_(static_cast<std::size_t>(cuts.size()), -1) {
    for (int cut = 0; cut < cuts.size(); ++cut) {
      const Work* sum = cuts.sum(cut);
      cut_sums_.push_back({sum[0].compute_ps(), sum[1].compute_ps(), sum[0].parameter_bytes, cuts.split_bytes(cut)});
    }
    set_capacities();
    least_.resize(labels_);
    best_.assign(cut_sums_.size() * labels_, limit_);
    from_.resize(best_.size());
    std::fill(best_.end() - static_cast<std::ptrdiff_t>(labels_), best_.end(), 0);
  }

  std::optional<DnnSplit> run() {
    for (int high = cuts_.size() - 1; high > 0; --high)
      if (collect_labels(high)) walk(high);
    // Fewer devices first.
    std::size_t chosen = labels_;
    for (std::size_t label = 0; label < labels_; ++label)
      if (row(0)[label] < limit_ && (chosen == labels_ || row(0)[label] < row(0)[chosen])) chosen = label;
    if (chosen == labels_) return std::nullopt;
    return trace(chosen);
  }

 private:
  struct Sums {
    std::int64_t accelerator_ps = 0, cpu_ps = 0, bytes = 0, split_ps = 0;
  };

  std::int64_t* row(int cut) { return &best_[static_cast<std::size_t>(cut) * labels_]; }

  // Collects the counts of devices to go on from: those that leave enough for all that lies below, and that no smaller counts beat.
  // @returns whether there are any
  bool collect_labels(int high) {
    const double below = static_cast<double>(cut_sums_[static_cast<std::size_t>(high)].accelerator_ps) * (1 - 1e-9);
    labels_here_.clear();
    for (std::size_t label = 0; label < labels_; ++label) {
      std::int64_t smaller = limit_;  // the best with no more of either kind and fewer of one
      if (label >= columns_) smaller = std::min(smaller, least_[label - columns_]);
      if (label % columns_ != 0) smaller = std::min(smaller, least_[label - 1]);
      const std::int64_t own = row(high)[label];
      least_[label] = std::min(own, smaller);
      if (own < smaller && static_cast<double>(limit_) * capacity_[label] >= below) labels_here_.push_back(label);
    }
    return !labels_here_.empty();
  }

  // What the devices that a label leaves are worth, in accelerators: a CPU as much as at the layer it is best at.
  void set_capacities() {
    double best = 0;
    for (int cut = 1; cut < cuts_.size(); ++cut) {
      const Sums &own = cut_sums_[static_cast<std::size_t>(cut)], &below = cut_sums_[static_cast<std::size_t>(cuts_.below(cut).front())];
      const double accelerator = static_cast<double>(own.accelerator_ps - below.accelerator_ps), cpu = static_cast<double>(own.cpu_ps - below.cpu_ps);
      if (accelerator > 0) best = std::max(best, cpu > 0 ? accelerator / cpu : std::numeric_limits<double>::infinity());
    }
    for (int k = 0; k <= devices_.accelerators; ++k)
      for (int c = 0; c <= devices_.cpus; ++c) capacity_.push_back(devices_.accelerators - k + (c == devices_.cpus ? 0 : best * (devices_.cpus - c)));
  }

  void walk(int high) {
    queue_.clear();
    push_below(high, high);
    for (std::size_t i = 0; i < queue_.size(); ++i)
      if (visit(queue_[i], high)) push_below(queue_[i], high);
  }

  void push_below(int cut, int high) {
    for (const int lower : cuts_.below(cut))
      if (seen_[static_cast<std::size_t>(lower)] != high) {
        seen_[static_cast<std::size_t>(lower)] = high;
        queue_.push_back(lower);
      }
  }

  // Whether a stage may reach further down than to this cut.
  bool visit(int low, int high) {
    ++states_;
    const Sums &top = cut_sums_[static_cast<std::size_t>(high)], &bottom = cut_sums_[static_cast<std::size_t>(low)];
    const std::int64_t cpu = top.cpu_ps - bottom.cpu_ps, compute = top.accelerator_ps - bottom.accelerator_ps;
    const bool on_cpu = cpu < limit_ && columns_ > 1;
    const bool on_accelerator = compute < limit_ && top.bytes - bottom.bytes <= devices_.memory_bytes && labels_ > columns_;
    if (on_cpu) place(low, high, 1, cpu, true);
    if (on_accelerator && improves(low, high, columns_, compute + std::abs(top.split_ps - bottom.split_ps))) {
      const StageSum flows = cuts_.stage_flows(low, high, nullptr);
      place(low, high, columns_, compute + flows.in_bytes + flows.out_bytes, false);
    }
    return on_cpu || on_accelerator;
  }

  // Labels are accelerators * columns + CPUs; a stage moves `by` labels on.
  bool improves(int low, int high, std::size_t by, std::int64_t load) {
    if (load >= limit_) return false;
    const std::int64_t *above = row(high), *known = row(low) + by;
    for (const std::size_t label : labels_here_)
      if (label + by < labels_ && std::max(above[label], load) < known[label]) return true;
    return false;
  }

  void place(int low, int high, std::size_t by, std::int64_t load, bool on_cpu) {
    if (load >= limit_) return;
    const std::int64_t* above = row(high);
    std::int64_t* known = row(low) + by;
    From* from = &from_[static_cast<std::size_t>(low) * labels_ + by];
    for (const std::size_t label : labels_here_) {
      if (label + by >= labels_ || (on_cpu && (label + 1) % columns_ == 0)) continue;  // none is left
      const std::int64_t value = std::max(above[label], load);
      if (value >= known[label]) continue;
      known[label] = value;
      from[label] = {high, on_cpu};
    }
  }

  DnnSplit trace(std::size_t label) {
    DnnSplit split;
    split.largest_load_ps = row(0)[label];
    for (int cut = 0; cut != cuts_.size() - 1;) {
      const From from = from_[static_cast<std::size_t>(cut) * labels_ + label];
      split.stages.push_back({cut, from.high, from.on_cpu});
      label -= from.on_cpu ? 1 : columns_;
      cut = from.high;
    }
    return split;
  }

  const CutFamily& cuts_;
  const DnnDevices& devices_;
  std::int64_t limit_;
  std::int64_t& states_;
  std::size_t columns_, labels_;
  std::vector<Sums> cut_sums_;
  std::vector<std::int64_t> best_;  // [cut][label]
  std::vector<From> from_;
  std::vector<std::size_t> labels_here_;  // of the cut at hand
  std::vector<std::int64_t> least_;       // per label, while they are collected
  std::vector<double> capacity_;          // per label
  std::vector<int> seen_, queue_;
};

}  // namespace

std::optional<DnnSplit> search_dnn_partitioning(const CutFamily& cuts, const DnnDevices& devices, std::int64_t below_ps, std::int64_t& states) {
  return Search(cuts, devices, below_ps, states).run();
}

}  // namespace pipedream
