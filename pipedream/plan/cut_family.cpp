#include "pipedream/plan/cut_family.hpp"

#include <algorithm>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/random.hpp"

namespace pipedream {
namespace {

using Bits = std::vector<std::uint64_t>;

struct HashBits {
  std::size_t operator()(const Bits& bits) const {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : bits) hash = combine_keys(hash, word);
    return static_cast<std::size_t>(hash);
  }
};

bool has(const Bits& bits, int node) { return (bits[static_cast<std::size_t>(node) / 64] >> (static_cast<unsigned>(node) % 64) & 1U) != 0; }
void add(Bits& bits, int node) { bits[static_cast<std::size_t>(node) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(node) % 64); }

}  // namespace

CutFamily::CutFamily(const WorkGraph& graph)
    : flows_of_(static_cast<std::size_t>(graph.size())), nodes_(graph.size()), words_((static_cast<std::size_t>(graph.size()) + 63) / 64) {
  for (const Flow& flow : graph.flows) {
    if (flow.bytes == 0) continue;
    Members members{flow.targets, flow.bytes};
    members.nodes.push_back(flow.source);
    std::sort(members.nodes.begin(), members.nodes.end());
    for (const int node : members.nodes) flows_of_[static_cast<std::size_t>(node)].push_back(static_cast<int>(flows_.size()));
    flows_.push_back(std::move(members));
  }
}

std::optional<CutFamily> CutFamily::all(const WorkGraph& graph, const std::vector<std::vector<Work>>& work, std::int64_t limit) {
  CutFamily family(graph);
  const int n = graph.size();
  // Layer by layer of set size, so that sets come out smallest first.
  std::unordered_map<Bits, int, HashBits> layer, next;
  Bits empty(family.words_, 0);
  layer.emplace(empty, 0);
  std::vector<Bits> members{empty};
  std::vector<std::vector<int>> below(1);
  std::size_t begin = 0;
  for (int size = 0; size < n; ++size) {
    const std::size_t end = members.size();
    next.clear();
    for (std::size_t i = begin; i < end; ++i) {
      for (int node = 0; node < n; ++node) {
        if (has(members[i], node)) continue;
        const auto& sources = graph.sources[static_cast<std::size_t>(node)];
        if (!std::all_of(sources.begin(), sources.end(), [&](int source) { return has(members[i], source); })) continue;
        Bits larger = members[i];
        add(larger, node);
        const auto [at, fresh] = next.emplace(larger, static_cast<int>(members.size()));
        if (fresh) {
          if (static_cast<std::int64_t>(members.size()) >= limit) return std::nullopt;
          members.push_back(std::move(larger));
          below.emplace_back();
        }
        below[static_cast<std::size_t>(at->second)].push_back(static_cast<int>(i));
      }
    }
    begin = end;
    layer.swap(next);
  }
  family.bits_.reserve(members.size() * family.words_);
  for (const Bits& bits : members) family.bits_.insert(family.bits_.end(), bits.begin(), bits.end());
  family.chain_ = std::all_of(below.begin(), below.end(), [](const auto& lower) { return lower.size() <= 1; });
  family.finish(below, work);
  return family;
}

CutFamily CutFamily::prefixes(const WorkGraph& graph, const std::vector<std::vector<Work>>& work, const std::vector<int>& order) {
  CutFamily family(graph);
  family.chain_ = true;
  Bits bits(family.words_, 0);
  family.bits_ = bits;
  std::vector<std::vector<int>> below(1);
  for (std::size_t i = 0; i < order.size(); ++i) {
    add(bits, order[i]);
    family.bits_.insert(family.bits_.end(), bits.begin(), bits.end());
    below.push_back({static_cast<int>(i)});
  }
  family.finish(below, work);
  return family;
}

void CutFamily::finish(const std::vector<std::vector<int>>& below, const std::vector<std::vector<Work>>& work) {
  below_begin_.assign(1, 0);
  for (const auto& lower : below) {
    below_.insert(below_.end(), lower.begin(), lower.end());
    below_begin_.push_back(below_.size());
  }
  measurements_ = static_cast<int>(work.size());
  const auto count = static_cast<std::size_t>(size()), m = static_cast<std::size_t>(measurements_);
  sums_.assign(count * m, {});
  split_.resize(count);
  split_bytes_.assign(count, 0);
  for (std::size_t cut = 1; cut < count; ++cut) {
    const int lower = below[cut].front();
    int node = 0;  // the one that is new
    for (std::size_t w = 0; w < words_; ++w)
      if (const std::uint64_t fresh = bits(static_cast<int>(cut))[w] & ~bits(lower)[w]; fresh != 0)
        node = static_cast<int>(w * 64) + __builtin_ctzll(fresh);
    for (std::size_t k = 0; k < m; ++k) {
      sums_[cut * m + k] = sums_[static_cast<std::size_t>(lower) * m + k];
      sums_[cut * m + k] += work[k][static_cast<std::size_t>(node)];
    }
    // Flows split here: those split below that the node does not complete, and those the node begins.
    std::vector<int>& split = split_[cut];
    const auto complete = [&](int flow) {
      const auto& members = flows_[static_cast<std::size_t>(flow)].nodes;
      return std::all_of(members.begin(), members.end(), [&](int member) { return contains(static_cast<int>(cut), member); });
    };
    for (const int flow : split_[static_cast<std::size_t>(lower)])
      if (!complete(flow)) split.push_back(flow);
    for (const int flow : flows_of_[static_cast<std::size_t>(node)])
      if (!complete(flow) && std::find(split.begin(), split.end(), flow) == split.end()) split.push_back(flow);
    for (const int flow : split) split_bytes_[cut] += flows_[static_cast<std::size_t>(flow)].bytes;
  }
}

StageSum CutFamily::stage(int low, int high, Work* work) const {
  stage_work(low, high, work);
  return stage_flows(low, high, work);
}

StageSum CutFamily::stage_flows(int low, int high, const Work* work) const {
  StageSum result{work, split_bytes_[static_cast<std::size_t>(low)], split_bytes_[static_cast<std::size_t>(high)]};
  // A flow split at both cuts is shared with both sides: it counts once, as in, and not at all if no member lies between the cuts.
  const std::uint64_t* inside = bits(low);
  const std::uint64_t* until = bits(high);
  for (const int index : split_[static_cast<std::size_t>(high)]) {
    const Members& flow = flows_[static_cast<std::size_t>(index)];
    bool below = false, between = false;
    for (const int node : flow.nodes) {
      const auto word = static_cast<std::size_t>(node) / 64;
      const std::uint64_t mask = std::uint64_t{1} << (static_cast<unsigned>(node) % 64);
      if ((inside[word] & mask) != 0) below = true;
      else if ((until[word] & mask) != 0) between = true;
    }
    if (!below) continue;
    result.out_bytes -= flow.bytes;
    if (!between) result.in_bytes -= flow.bytes;
  }
  return result;
}

std::vector<int> CutFamily::nodes(int low, int high) const {
  std::vector<int> result;
  for (int node = 0; node < nodes_; ++node)
    if (contains(high, node) && !contains(low, node)) result.push_back(node);
  return result;
}

bool CutFamily::contains(int cut, const CutFamily& other, int other_cut) const {
  for (std::size_t w = 0; w < words_; ++w)
    if ((other.bits(other_cut)[w] & ~bits(cut)[w]) != 0) return false;
  return true;
}

}  // namespace pipedream
