#include "pipedream/plan/piper_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "pipedream/core/error.hpp"
#include "pipedream/core/json.hpp"
#include "pipedream/plan/problem.hpp"

namespace pipedream {
namespace {

constexpr double kLargest = 1e30;

double amount(const JsonView& view) {
  const double value = view.number(0);
  if (value > kLargest) view.fail(fmt::format("{} is too much to plan with", value), "check the unit");
  return value;
}

int positive(const JsonView& view) {
  const int value = view.index();
  if (value < 1) view.fail(fmt::format("{}: at least 1 is expected", value));
  return value;
}

int degree_of(const std::string& key, const JsonView& view) {
  const bool digits = !key.empty() && key.size() < 6 && std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  const int degree = digits ? std::stoi(key) : 0;
  if (degree < 1) view.fail(fmt::format("'{}' is no tensor degree", key), "keys of \"TMPCs\" are numbers of devices from 1 to 99999");
  return degree;
}

class Reader {
 public:
  explicit Reader(const JsonView& top) : top_(top) {}

  PiperGraph read() {
    graph_.devices = positive(top_.at("maxDevices"));
    graph_.memory_bytes = amount(top_.at("maxMemoryPerDevice"));
    graph_.bandwidth = amount(top_.at("bandwidth"));
    if (!(graph_.bandwidth > 0)) top_.at("bandwidth").fail("the bandwidth is 0", "give bytes per second");
    graph_.micro_batches = positive(top_.at("mbsInBatch"));
    const auto nodes = top_.at("nodes").elements();
    if (nodes.empty()) top_.at("nodes").fail("the graph has no nodes");
    for (const JsonView& item : nodes) read_node(item);
    name_nodes();
    for (const JsonView& item : top_.at("edges").elements()) read_edge(item);
    check_cycles();
    for (std::size_t v = 0; v < nodes.size(); ++v) read_degrees(nodes[v].at("TMPCs"), graph_.nodes[v]);
    return std::move(graph_);
  }

 private:
  void read_node(const JsonView& item) {
    PiperNode node;
    node.id = item.at("id").integer();
    if (const auto name = item.find("name")) node.name = name->string();
    if (!index_.emplace(node.id, static_cast<int>(graph_.nodes.size())).second)
      item.at("id").fail("this id is there twice", "give every node an id of its own");
    graph_.nodes.push_back(std::move(node));
  }

  // Layers of one kind share a name there.
  void name_nodes() {
    std::map<std::string, int> count;
    for (const PiperNode& node : graph_.nodes) ++count[node.name];
    for (PiperNode& node : graph_.nodes)
      if (node.name.empty()) node.name = std::to_string(node.id);
      else if (count[node.name] > 1) node.name = fmt::format("{}_{}", node.name, node.id);
    std::set<std::string> seen;
    for (PiperNode& node : graph_.nodes)
      while (!seen.insert(node.name).second) node.name += "_";
  }

  int find(const JsonView& view) const {
    const auto at = index_.find(view.integer());
    if (at == index_.end()) view.fail("no node has this id");
    return at->second;
  }

  void read_edge(const JsonView& item) {
    PiperEdge edge{find(item.at("sourceId")), find(item.at("destId")), amount(item.at("communicationCost"))};
    if (edge.source == edge.target) item.fail("the edge goes from a node to itself");
    if (!pairs_.emplace(edge.source, edge.target).second) item.fail("this edge is there twice");
    const int index = static_cast<int>(graph_.edges.size());
    graph_.nodes[static_cast<std::size_t>(edge.source)].out_edges.push_back(index);
    graph_.nodes[static_cast<std::size_t>(edge.target)].in_edges.push_back(index);
    graph_.edges.push_back(edge);
  }

  void check_cycles() const {
    const std::vector<int> component = strong_components(static_cast<int>(graph_.nodes.size()), pairs_);
    std::map<int, std::size_t> first;
    for (std::size_t v = 0; v < component.size(); ++v)
      if (const auto [at, fresh] = first.emplace(component[v], v); !fresh)
        top_.at("edges").fail(fmt::format("nodes {} and {} lie on a cycle", graph_.nodes[at->second].id, graph_.nodes[v].id),
                              "edges must not form cycles");
  }

  std::vector<double> sync_bytes(const JsonView& view, const std::vector<int>& edges, bool in) const {
    std::vector<double> result;
    for (const int e : edges) {
      const PiperEdge& edge = graph_.edges[static_cast<std::size_t>(e)];
      result.push_back(amount(view.at(std::to_string(graph_.nodes[static_cast<std::size_t>(in ? edge.source : edge.target)].id))));
    }
    if (view.json().size() != edges.size()) view.fail("it names a node without an edge", "one entry per edge is expected");
    return result;
  }

  PiperDegree read_degree(const JsonView& view, const PiperNode& node) const {
    PiperDegree degree;
    for (const JsonView& item : view.elements()) {
      PiperDegree own;
      own.parameter_bytes = amount(item.at("parameterSize"));
      own.sync_in_bytes = sync_bytes(item.at("syncTimeFw"), node.in_edges, true);
      own.sync_out_bytes = sync_bytes(item.at("syncTimeBw"), node.out_edges, false);
      if (!degree.variants.empty() &&
          (own.parameter_bytes != degree.parameter_bytes || own.sync_in_bytes != degree.sync_in_bytes || own.sync_out_bytes != degree.sync_out_bytes))
        item.fail("its parameters or transfers are not those of the variant before it",
                  "variants of one tensor degree may differ in time and memory only");
      const std::string name = item.at("id").string();
      if (std::any_of(degree.variants.begin(), degree.variants.end(), [&](const PiperVariant& other) { return other.name == name; }))
        item.at("id").fail(fmt::format("the variant '{}' is there twice", name));
      own.variants = std::move(degree.variants);
      own.variants.push_back({name, amount(item.at("timePerSample")), amount(item.at("memoryUsageA")), amount(item.at("memoryUsageB"))});
      degree = std::move(own);
    }
    return degree;
  }

  void read_degrees(const JsonView& view, PiperNode& node) const {
    if (!view.json().is_object()) view.fail("an object from tensor degrees to variants is expected");
    for (const auto& [key, value] : view.json().items()) {
      PiperDegree degree = read_degree(view.at(key), node);
      if (!degree.variants.empty()) node.degrees.emplace(degree_of(key, view), std::move(degree));
    }
    if (node.degrees.empty()) view.fail("no tensor degree has a variant, so no device can run this node");
  }

  const JsonView& top_;
  PiperGraph graph_;
  std::unordered_map<std::int64_t, int> index_;
  std::set<std::pair<int, int>> pairs_;
};

}  // namespace

bool looks_like_piper(const std::string& text) {
  return text.find("\"TMPCs\"") != std::string::npos && text.find("\"maxMemoryPerDevice\"") != std::string::npos;
}

PiperGraph read_piper(const std::string& text, const std::string& file) {
  const Json json = parse_json(text, file);
  const JsonView top(json, file);
  PiperGraph graph = Reader(top).read();
  graph.file = file;
  return graph;
}

Profile profile_of_piper(const PiperGraph& graph, double ms_per_unit) {
  Profile profile;
  for (const PiperNode& node : graph.nodes) {
    const auto at = node.degrees.find(1);
    if (at == node.degrees.end())
      throw InputError(graph.file, fmt::format("node {} cannot run on one device", node.id), "a profile holds layers on one device");
    const auto& variants = at->second.variants;
    const auto fastest = std::min_element(variants.begin(), variants.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    const auto slowest = std::max_element(variants.begin(), variants.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    LayerProfile layer;
    layer.name = node.name;
    layer.forward_ms = ms_per_unit * (fastest == slowest ? fastest->time : std::min(slowest->time - fastest->time, fastest->time));
    layer.backward_ms = ms_per_unit * fastest->time - layer.forward_ms;
    layer.parameter_bytes = std::llround(at->second.parameter_bytes);
    layer.stashed_bytes = std::llround(fastest->memory_a_bytes);
    profile.layers.push_back(std::move(layer));
  }
  // Tensors of one node that differ in size are outputs of their own.
  for (const PiperEdge& edge : graph.edges) {
    auto& outputs = profile.layers[static_cast<std::size_t>(edge.source)].output_bytes;
    const std::int64_t bytes = std::llround(edge.bytes);
    auto at = std::find(outputs.begin(), outputs.end(), bytes);
    if (at == outputs.end()) at = outputs.insert(outputs.end(), bytes);
    profile.edges.push_back({edge.source, edge.target, static_cast<int>(at - outputs.begin())});
  }
  return profile;
}

PiperGraph repeat_layer(const PiperGraph& graph, int previous, int node, int next, int times) {
  PiperGraph result = graph;
  const PiperNode& model = graph.nodes[static_cast<std::size_t>(node)];
  const auto in =
      std::find_if(model.in_edges.begin(), model.in_edges.end(), [&](int e) { return graph.edges[static_cast<std::size_t>(e)].source == previous; });
  const auto out =
      std::find_if(model.out_edges.begin(), model.out_edges.end(), [&](int e) { return graph.edges[static_cast<std::size_t>(e)].target == next; });
  PD_CHECK(in != model.in_edges.end() && out != model.out_edges.end(), "node {} does not lie between the others", model.id);
  PiperNode copy = model;
  for (auto& [t, degree] : copy.degrees) {
    degree.sync_in_bytes = {degree.sync_in_bytes[static_cast<std::size_t>(in - model.in_edges.begin())]};
    degree.sync_out_bytes = {degree.sync_out_bytes[static_cast<std::size_t>(out - model.out_edges.begin())]};
  }
  int into = *out;  // the edge that ends at the newest copy
  for (int i = 0; i < times; ++i) {
    const int fresh = static_cast<int>(result.edges.size()), index = static_cast<int>(result.nodes.size());
    ++copy.id;
    while (std::any_of(result.nodes.begin(), result.nodes.end(), [&](const PiperNode& other) { return other.id == copy.id; })) ++copy.id;
    copy.name = fmt::format("{}_copy{}", model.name, i + 1);
    copy.in_edges = {into};
    copy.out_edges = {fresh};
    result.edges[static_cast<std::size_t>(into)].target = index;
    result.edges.push_back({index, next, graph.edges[static_cast<std::size_t>(*out)].bytes});
    result.nodes.push_back(copy);
    into = fresh;
  }
  auto& ends = result.nodes[static_cast<std::size_t>(next)].in_edges;
  std::replace(ends.begin(), ends.end(), *out, into);
  return result;
}

}  // namespace pipedream
