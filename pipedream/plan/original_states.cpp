#include "pipedream/plan/original_states.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <set>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

using Antichain = std::vector<int>;  // ascending

// The graph without the sources named Input and without the sinks named __getitem__, and who comes before whom.
class Ancestry {
 public:
  explicit Ancestry(const Profile& profile) : n_(profile.layers.size()), next_(n_), kept_(n_, true), ancestor_(n_, std::vector<char>(n_, 0)) {
    std::vector<int> sources(n_, 0), targets(n_, 0);
    for (const ProfileEdge& edge : profile.edges) ++sources[static_cast<std::size_t>(edge.target)], ++targets[static_cast<std::size_t>(edge.source)];
    for (std::size_t v = 0; v < n_; ++v) {
      const std::string& what = profile.layers[v].description;
      if ((sources[v] == 0 && what.rfind("Input", 0) == 0) || (targets[v] == 0 && what.rfind("__getitem__", 0) == 0)) kept_[v] = false;
    }
    std::vector<std::set<int>> next(n_);
    for (const ProfileEdge& edge : profile.edges)
      if (kept_[static_cast<std::size_t>(edge.source)] && kept_[static_cast<std::size_t>(edge.target)])
        next[static_cast<std::size_t>(edge.source)].insert(edge.target);
    std::vector<int> waiting(n_, 0);
    for (std::size_t v = 0; v < n_; ++v) {
      next_[v].assign(next[v].begin(), next[v].end());
      for (const int w : next_[v]) ++waiting[static_cast<std::size_t>(w)];
    }
    for (std::size_t v = 0; v < n_ && first_ < 0; ++v)
      if (kept_[v] && waiting[v] == 0) first_ = static_cast<int>(v);
    for (const int v : topological_order(profile))
      for (const int w : next_[static_cast<std::size_t>(v)]) {
        auto& to = ancestor_[static_cast<std::size_t>(w)];
        for (std::size_t a = 0; a < n_; ++a) to[a] = static_cast<char>(to[a] | ancestor_[static_cast<std::size_t>(v)][a]);
        to[static_cast<std::size_t>(v)] = 1;
      }
  }
  [[nodiscard]] bool kept(std::size_t v) const { return kept_[v]; }
  [[nodiscard]] int first() const { return first_; }
  [[nodiscard]] std::size_t size() const { return n_; }
  [[nodiscard]] const std::vector<int>& next(int v) const { return next_[static_cast<std::size_t>(v)]; }
  [[nodiscard]] bool is_ancestor(int a, int of) const { return ancestor_[static_cast<std::size_t>(of)][static_cast<std::size_t>(a)] != 0; }

 private:
  std::size_t n_;
  std::vector<std::vector<int>> next_;
  std::vector<bool> kept_;
  std::vector<std::vector<char>> ancestor_;
  int first_ = -1;
};

// The antichain and every ancestor of one of its members that also leads elsewhere.
std::vector<int> augmented(const Ancestry& graph, const Antichain& antichain) {
  std::set<int> result(antichain.begin(), antichain.end());
  for (const int a : antichain)
    for (int p = 0; p < static_cast<int>(graph.size()); ++p) {
      if (!graph.is_ancestor(p, a)) continue;
      const auto& out = graph.next(p);
      if (std::any_of(out.begin(), out.end(), [&](int w) { return w != a && !graph.is_ancestor(w, a); })) result.insert(p);
    }
  return {result.begin(), result.end()};
}

std::vector<Antichain> next_antichains(const Ancestry& graph, const Antichain& antichain) {
  std::vector<Antichain> result;
  const std::vector<int> all = augmented(graph, antichain);
  for (const int v : all)
    for (const int w : graph.next(v)) {
      if (std::binary_search(antichain.begin(), antichain.end(), w)) continue;
      if (std::any_of(all.begin(), all.end(), [&](int x) { return graph.is_ancestor(w, x); })) continue;
      std::set<int> replaced(all.begin(), all.end());
      replaced.erase(v);
      replaced.insert(w);
      Antichain next;
      for (const int x : replaced)
        if (std::none_of(replaced.begin(), replaced.end(), [&](int y) { return graph.is_ancestor(x, y); })) next.push_back(x);
      result.push_back(std::move(next));
    }
  return result;
}

struct AntichainDag {
  std::vector<Antichain> antichains;
  std::vector<std::set<int>> next;
};

std::optional<AntichainDag> antichain_dag(const Ancestry& graph, int limit) {
  AntichainDag dag;
  std::map<Antichain, int> index{{{graph.first()}, 0}};
  dag.antichains.push_back({graph.first()});
  dag.next.emplace_back();
  for (std::size_t i = 0; i < dag.antichains.size(); ++i) {
    for (Antichain& next : next_antichains(graph, dag.antichains[i])) {
      const auto [at, fresh] = index.emplace(next, static_cast<int>(dag.antichains.size()));
      if (fresh) {
        if (static_cast<int>(dag.antichains.size()) >= limit) return std::nullopt;
        dag.antichains.push_back(std::move(next));
        dag.next.emplace_back();
      }
      dag.next[i].insert(at->second);
    }
  }
  return dag;
}

std::vector<int> sorted_states(const AntichainDag& dag) {
  std::vector<int> waiting(dag.antichains.size(), 0), order;
  for (const auto& next : dag.next)
    for (const int w : next) ++waiting[static_cast<std::size_t>(w)];
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (std::size_t i = 0; i < waiting.size(); ++i)
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  while (!ready.empty()) {
    const int v = ready.top();
    ready.pop();
    order.push_back(v);
    for (const int w : dag.next[static_cast<std::size_t>(v)])
      if (--waiting[static_cast<std::size_t>(w)] == 0) ready.push(w);
  }
  return order;
}

}  // namespace

std::optional<OriginalStates> original_states(const Profile& profile, int limit) {
  const Ancestry graph(profile);
  if (graph.first() < 0) throw InputError(profile.model, "nothing is left to plan: every layer is an input", "give the layers that compute");
  const auto dag = antichain_dag(graph, limit);
  if (!dag) return std::nullopt;
  const std::vector<int> order = sorted_states(*dag);
  std::vector<int> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) position[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  OriginalStates states;
  states.before.resize(order.size());
  std::vector<std::vector<char>> reached(order.size(), std::vector<char>(order.size(), 0));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Antichain& antichain = dag->antichains[static_cast<std::size_t>(order[i])];
    double compute = 0, parameters = 0, activations = 0, output = 0;
    std::vector<int> layers;
    for (int v = 0; v < static_cast<int>(graph.size()); ++v) {
      if (std::none_of(antichain.begin(), antichain.end(), [&](int a) { return a == v || graph.is_ancestor(v, a); })) continue;
      const LayerProfile& layer = profile.layers[static_cast<std::size_t>(v)];
      compute += (layer.forward_ms + layer.backward_ms) / 1000;
      parameters += static_cast<double>(layer.parameter_bytes);
      activations += static_cast<double>(layer.total_output_bytes());
      layers.push_back(v);
    }
    for (const int v : augmented(graph, antichain)) output += static_cast<double>(profile.layers[static_cast<std::size_t>(v)].total_output_bytes());
    states.compute_s.push_back(compute);
    states.parameter_bytes.push_back(parameters);
    states.activation_bytes.push_back(activations);
    states.output_bytes.push_back(output);
    states.layers.push_back(std::move(layers));
    for (const int next : dag->next[static_cast<std::size_t>(order[i])]) {
      auto& to = reached[static_cast<std::size_t>(position[static_cast<std::size_t>(next)])];
      for (std::size_t a = 0; a < order.size(); ++a) to[a] = static_cast<char>(to[a] | reached[i][a]);
      to[i] = 1;
    }
  }
  for (std::size_t i = 0; i < order.size(); ++i)
    for (std::size_t a = 0; a < i; ++a)
      if (reached[i][a] != 0) states.before[i].push_back(static_cast<int>(a));
  std::vector<char> placed(graph.size(), 0);
  for (const int layer : states.layers.back()) placed[static_cast<std::size_t>(layer)] = 1;
  for (std::size_t v = 0; v < graph.size(); ++v) {
    if (placed[v] != 0) continue;
    const bool source =
        std::none_of(profile.edges.begin(), profile.edges.end(), [&](const ProfileEdge& edge) { return edge.target == static_cast<int>(v); });
    (source ? states.loose_layers : states.trailing_layers).push_back(static_cast<int>(v));
  }
  return states;
}

Profile compress_branches(const Profile& profile, std::vector<std::vector<int>>* members) {
  const std::size_t n = profile.layers.size();
  std::vector<std::vector<int>> next(n);
  std::vector<int> sources(n, 0), chain_of(n);
  for (const ProfileEdge& edge : profile.edges) {
    next[static_cast<std::size_t>(edge.source)].push_back(edge.target);
    ++sources[static_cast<std::size_t>(edge.target)];
  }
  for (std::size_t v = 0; v < n; ++v) chain_of[v] = static_cast<int>(v);
  const auto is_link = [&](int v) { return sources[static_cast<std::size_t>(v)] == 1 && next[static_cast<std::size_t>(v)].size() == 1; };
  Profile result = profile;
  for (std::size_t v = 0; v < n; ++v) {
    if (next[v].size() < 2) continue;
    for (const int head : next[v]) {
      if (!is_link(head)) continue;
      // The chain ends before a layer with several inputs; one with several outputs still joins it.
      for (int link = next[static_cast<std::size_t>(head)].front(); sources[static_cast<std::size_t>(link)] == 1;
           link = next[static_cast<std::size_t>(link)].front()) {
        chain_of[static_cast<std::size_t>(link)] = head;
        LayerProfile& merged = result.layers[static_cast<std::size_t>(head)];
        const LayerProfile& layer = profile.layers[static_cast<std::size_t>(link)];
        merged.forward_ms += layer.forward_ms;
        merged.backward_ms += layer.backward_ms;
        merged.parameter_bytes += layer.parameter_bytes;
        merged.output_bytes = layer.output_bytes;
        if (!is_link(link)) break;
      }
    }
  }
  std::vector<int> number(n, -1);
  Profile compressed = result;
  compressed.layers.clear();
  compressed.edges.clear();
  compressed.ties.clear();
  for (std::size_t v = 0; v < n; ++v)
    if (chain_of[v] == static_cast<int>(v)) {
      number[v] = compressed.num_layers();
      compressed.layers.push_back(result.layers[v]);
    }
  if (members != nullptr) {
    members->assign(compressed.layers.size(), {});
    for (std::size_t v = 0; v < n; ++v)
      (*members)[static_cast<std::size_t>(number[static_cast<std::size_t>(chain_of[v])])].push_back(static_cast<int>(v));
  }
  std::set<std::pair<int, int>> seen;
  for (const ProfileEdge& edge : profile.edges) {
    const int a = number[static_cast<std::size_t>(chain_of[static_cast<std::size_t>(edge.source)])];
    const int b = number[static_cast<std::size_t>(chain_of[static_cast<std::size_t>(edge.target)])];
    if (a != b && seen.emplace(a, b).second) compressed.edges.push_back({a, b, ProfileEdge::kAllOutputs});
  }
  return compressed;
}

}  // namespace pipedream
