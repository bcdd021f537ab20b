#include "pipedream/plan/piper_search.hpp"

#include <algorithm>

#include "pipedream/core/error.hpp"

namespace pipedream {

PiperSearch::PiperSearch(const PiperWork& work, const PiperGraph& graph, const CutFamily& cuts)
    : work_(work), graph_(graph), cuts_(cuts), degrees_(work.degrees.size()), seen_(static_cast<std::size_t>(cuts.size()), -1) {
  PD_CHECK(degrees_ <= 64, "{} tensor degrees", degrees_);
  add_up();
}

void PiperSearch::add_up() {
  const auto count = static_cast<std::size_t>(cuts_.size());
  std::vector<std::int64_t> node_work(static_cast<std::size_t>(work_.nodes)), node_bytes(node_work);
  possible_.assign(static_cast<std::size_t>(work_.nodes), 0);
  for (int node = 0; node < work_.nodes; ++node) {
    std::int64_t least = INT64_MAX, bytes = INT64_MAX;
    for (std::size_t t = 0; t < degrees_; ++t) {
      const PiperLayerWork& layer = work_.layer(t, node);
      if (!layer.possible) continue;
      possible_[static_cast<std::size_t>(node)] |= std::uint64_t{1} << t;
      least = std::min(least, layer.time * work_.degrees[t]);
      bytes = std::min(bytes, layer.a_bytes + layer.b_bytes);
      for (const PiperChoice& choice : layer.leaner) bytes = std::min(bytes, choice.a_bytes + choice.b_bytes);
    }
    node_work[static_cast<std::size_t>(node)] = least == INT64_MAX ? 0 : least;  // impossible everywhere: no stage will hold it
    node_bytes[static_cast<std::size_t>(node)] = bytes == INT64_MAX ? 0 : bytes;
  }
  sums_.assign(count * degrees_, {});
  least_work_.assign(count, 0);
  least_bytes_.assign(count, 0);
  steps_.resize(count);
  for (std::size_t cut = 1; cut < count; ++cut) {
    for (const int below : cuts_.below(static_cast<int>(cut))) steps_[cut].push_back({below, cuts_.nodes(below, static_cast<int>(cut)).front()});
    const auto [below, node] = steps_[cut].front();
    const auto from = static_cast<std::size_t>(below);
    least_work_[cut] = least_work_[from] + node_work[static_cast<std::size_t>(node)];
    least_bytes_[cut] = least_bytes_[from] + node_bytes[static_cast<std::size_t>(node)];
    for (std::size_t t = 0; t < degrees_; ++t) {
      const PiperLayerWork& layer = work_.layer(t, node);
      const Sums& s = sums_[from * degrees_ + t];
      sums_[cut * degrees_ + t] = {s.time + layer.time, s.reduce + layer.reduce, s.a_bytes + layer.a_bytes, s.b_bytes + layer.b_bytes};
    }
  }
}

std::int64_t PiperSearch::floor() const { return (least_work_.back() + work_.devices - 1) / work_.devices; }

std::int64_t PiperSearch::devices_for(std::int64_t least_work) const {
  if (least_work == 0) return 0;
  return threshold_ > 0 ? (least_work + threshold_ - 1) / threshold_ : INT64_MAX / 4;
}

std::optional<std::vector<PiperFoundStage>> PiperSearch::find(std::int64_t threshold) {
  threshold_ = threshold;
  labels_.assign(static_cast<std::size_t>(cuts_.size()), {});
  labels_.back().push_back({});
  for (int high = cuts_.size() - 1; high > 0; --high)
    if (!labels_[static_cast<std::size_t>(high)].empty()) walk(high);
  if (labels_.front().empty()) return std::nullopt;
  return trace();
}

// All cuts below, nearest first; what a stage sends and receives follows from the stage with one layer less.
void PiperSearch::walk(int high) {
  ++walks_;
  queue_.clear();
  queue_possible_.clear();
  queue_transfer_.clear();
  for (const Step& step : steps_[static_cast<std::size_t>(high)]) push(high, SIZE_MAX, step);
  for (std::size_t at = 0; at < queue_.size(); ++at) {
    const int low = queue_[at];
    if (visit(low, high, at))
      for (const Step& step : steps_[static_cast<std::size_t>(low)]) push(high, at, step);
  }
}

void PiperSearch::push(int high, std::size_t from, const Step& step) {
  if (seen_[static_cast<std::size_t>(step.cut)] == walks_) return;
  seen_[static_cast<std::size_t>(step.cut)] = walks_;
  const std::uint64_t possible = possible_[static_cast<std::size_t>(step.node)] & (from == SIZE_MAX ? ~std::uint64_t{0} : queue_possible_[from]);
  queue_.push_back(step.cut);
  queue_possible_.push_back(possible);
  const std::size_t base = queue_transfer_.size();
  for (std::size_t t = 0; t < degrees_; ++t) queue_transfer_.push_back(from == SIZE_MAX ? 0 : queue_transfer_[from * degrees_ + t]);
  const PiperNode& node = graph_.nodes[static_cast<std::size_t>(step.node)];
  for (const int e : node.in_edges)  // its sources lie below
    for (std::size_t t = 0; t < degrees_; ++t) queue_transfer_[base + t] += work_.in[t][static_cast<std::size_t>(e)];
  for (const int e : node.out_edges) {
    const bool inside = cuts_.contains(high, graph_.edges[static_cast<std::size_t>(e)].target);
    for (std::size_t t = 0; t < degrees_; ++t)
      queue_transfer_[base + t] += inside ? -work_.in[t][static_cast<std::size_t>(e)] : work_.out[t][static_cast<std::size_t>(e)];
  }
}

// Whether a stage may reach further down than to this cut.
bool PiperSearch::visit(int low, int high, std::size_t at) {
  ++states_;
  const auto l = static_cast<std::size_t>(low), h = static_cast<std::size_t>(high);
  const std::uint64_t possible = queue_possible_[at];
  if (possible == 0 || least_bytes_[h] - least_bytes_[l] > work_.memory_bytes) return false;
  const std::int64_t used = labels_[h].front().devices, own = std::max<std::int64_t>(1, devices_for(least_work_[h] - least_work_[l]));
  if (used + own > work_.devices) return false;
  const std::int64_t for_low = std::max<std::int64_t>(low > 0 ? 1 : 0, devices_for(least_work_[l]));
  if (used + own + for_low > work_.devices) return true;
  for (std::size_t t = 0; t < degrees_; ++t)
    if ((possible >> t & 1) != 0) try_degree(low, high, t, queue_transfer_[at * degrees_ + t], for_low);
  return true;
}

void PiperSearch::try_degree(int low, int high, std::size_t degree, std::int64_t transfer, std::int64_t for_low) {
  const Sums &top = sums(high, degree), &bottom = sums(low, degree);
  const Sums stage{top.time - bottom.time, top.reduce - bottom.reduce, top.a_bytes - bottom.a_bytes, top.b_bytes - bottom.b_bytes};
  // time + transfer + reduce (d - 1) <= threshold d; the fastest variants decide how few replicas may do.
  const std::int64_t fixed = stage.time + transfer - stage.reduce, slope = threshold_ - stage.reduce;
  std::size_t first = 0;
  if (slope > 0 && fixed > 0) {
    const std::int64_t least = (fixed + slope - 1) / slope;
    if (least > work_.replicas.back()) return;
    first =
        static_cast<std::size_t>(std::lower_bound(work_.replicas.begin(), work_.replicas.end(), static_cast<int>(least)) - work_.replicas.begin());
  }
  if (slope <= 0 && fixed > slope) return;  // not even one replica: the reduction alone takes too long with more
  const int t = work_.degrees[degree];
  for (std::size_t index = 0; index < labels_[static_cast<std::size_t>(high)].size(); ++index) {
    const Label& label = labels_[static_cast<std::size_t>(high)][index];
    for (std::size_t r = first; r < work_.replicas.size(); ++r) {
      const int d = work_.replicas[r];
      const std::int64_t devices = label.devices + static_cast<std::int64_t>(t) * d, replicas = label.replicas + d;
      if (devices + for_low > work_.devices) {
        if (r == first) return;  // labels come by devices
        break;
      }
      if (replicas > work_.most_replicas || beaten(low, static_cast<int>(devices), static_cast<int>(replicas))) break;
      const std::int64_t budget = threshold_ * d - fixed - stage.reduce * d;
      if (budget < 0) break;
      if (!fits(low, high, degree, stage, d, label.replicas, budget)) continue;
      insert(low, {static_cast<int>(devices), static_cast<int>(replicas), high, static_cast<int>(index), static_cast<int>(degree), d});
      break;
    }
  }
}

bool PiperSearch::fits(int low, int high, std::size_t degree, const Sums& stage, int replicas, int later_replicas, std::int64_t budget) {
  const int in_flight = 1 + (later_replicas + replicas - 1) / replicas;
  const std::int64_t need = stage.a_bytes * in_flight + stage.b_bytes - work_.memory_bytes;
  if (need <= 0) return true;
  PiperRecompute& leaner = recompute(degree, in_flight);
  if (static_cast<double>(need) * leaner.best_price() * (1 - 1e-9) > static_cast<double>(budget)) return false;
  return leaner.choose(need, budget, [&](int node) { return cuts_.contains(high, node) && !cuts_.contains(low, node); }).has_value();
}

PiperRecompute& PiperSearch::recompute(std::size_t degree, int in_flight) {
  const auto key = std::make_pair(degree, in_flight);
  const auto at = recompute_.find(key);
  return at != recompute_.end() ? at->second : recompute_.emplace(key, PiperRecompute(work_, degree, in_flight)).first->second;
}

bool PiperSearch::beaten(int cut, int devices, int replicas) const {
  const auto& known =
      labels_[static_cast<std::size_t>(cut)];  // by devices, replicas falling: the last one with no more devices has the fewest replicas
  const auto after = std::upper_bound(known.begin(), known.end(), devices, [](int value, const Label& label) { return value < label.devices; });
  return after != known.begin() && std::prev(after)->replicas <= replicas;
}

void PiperSearch::insert(int cut, const Label& label) {
  auto& known = labels_[static_cast<std::size_t>(cut)];
  const auto at = std::lower_bound(known.begin(), known.end(), label.devices, [](const Label& l, int value) { return l.devices < value; });
  auto end = at;
  while (end != known.end() && end->replicas >= label.replicas) ++end;
  if (at == end) known.insert(at, label);
  else {
    *at = label;
    known.erase(at + 1, end);
  }
}

std::vector<PiperFoundStage> PiperSearch::trace() {
  std::vector<PiperFoundStage> result;
  int cut = 0, index = 0;  // the fewest devices
  while (cut != cuts_.size() - 1) {
    const Label label = labels_[static_cast<std::size_t>(cut)][static_cast<std::size_t>(index)];
    result.push_back(found_stage(cut, label));
    index = label.before;
    cut = label.high;
  }
  return result;
}

std::int64_t PiperSearch::transfer_of(const std::vector<char>& inside, std::size_t degree) const {
  std::int64_t sum = 0;
  for (std::size_t e = 0; e < graph_.edges.size(); ++e) {
    const bool from = inside[static_cast<std::size_t>(graph_.edges[e].source)] != 0,
               to = inside[static_cast<std::size_t>(graph_.edges[e].target)] != 0;
    if (to && !from) sum += work_.in[degree][e];
    if (from && !to) sum += work_.out[degree][e];
  }
  return sum;
}

// The stage with the least recomputation that fits, not just with little enough.
PiperFoundStage PiperSearch::found_stage(int low, const Label& label) {
  PiperFoundStage stage;
  const auto degree = static_cast<std::size_t>(label.degree);
  stage.degree = work_.degrees[degree];
  stage.replicas = label.stage_replicas;
  stage.in_flight = 1 + (label.replicas - label.stage_replicas + label.stage_replicas - 1) / label.stage_replicas;
  stage.nodes = cuts_.nodes(low, label.high);
  std::vector<char> inside(static_cast<std::size_t>(work_.nodes), 0);
  std::int64_t time = 0, reduce = 0, bytes = -work_.memory_bytes;
  for (const int node : stage.nodes) {
    const PiperLayerWork& layer = work_.layer(degree, node);
    inside[static_cast<std::size_t>(node)] = 1;
    stage.variants.push_back(layer.variant);
    time += layer.time;
    reduce += layer.reduce;
    bytes += layer.a_bytes * stage.in_flight + layer.b_bytes;
  }
  stage.load_times_replicas = time + transfer_of(inside, degree) + reduce * (stage.replicas - 1);
  if (bytes <= 0) return stage;
  std::int64_t budget = threshold_ * stage.replicas - stage.load_times_replicas, extra = 0;
  std::optional<std::vector<std::pair<int, int>>> best;
  while (auto chosen =
             recompute(degree, stage.in_flight).choose(bytes, budget, [&](int node) { return inside[static_cast<std::size_t>(node)] != 0; })) {
    extra = 0;
    for (const auto& [node, variant] : *chosen)
      for (const PiperChoice& choice : work_.layer(degree, node).leaner)
        if (choice.variant == variant) extra += choice.extra;
    best = std::move(chosen);
    budget = extra - 1;
  }
  PD_CHECK(best.has_value(), "a stage that fitted does not fit any more");
  stage.load_times_replicas += extra;
  for (const auto& [node, variant] : *best)
    stage.variants[static_cast<std::size_t>(std::find(stage.nodes.begin(), stage.nodes.end(), node) - stage.nodes.begin())] = variant;
  return stage;
}

}  // namespace pipedream
