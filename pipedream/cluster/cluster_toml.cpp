#include <fmt/format.h>

#include <toml++/toml.h>
#include <cmath>
#include <limits>
#include <set>
#include <sstream>

#include "pipedream/cluster/cluster.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

// One [[table]] of the file; its accessors name file and line where something is wrong.
class TableView {
 public:
  TableView(const toml::table& table, std::string file, std::string name) : table_(table), file_(std::move(file)), name_(std::move(name)) {}

  [[noreturn]] void fail(const toml::node& node, const std::string& what, const std::string& hint) const {
    throw InputError(fmt::format("{}:{}", file_, node.source().begin.line), what, hint);
  }
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const { fail(table_, what, hint); }

  void allow(const std::set<std::string>& keys) const {
    for (const auto& [key, node] : table_)
      if (!keys.count(std::string(key.str())))
        fail(node, fmt::format("{} has no key '{}'", name_.empty() ? "a cluster file" : "[[" + name_ + "]]", key.str()),
             fmt::format("it has: {}", joined(keys)));
  }

  const toml::node* find(const char* key) const { return table_.get(key); }
  const toml::node& at(const char* key) const {
    const toml::node* node = find(key);
    if (node == nullptr) fail(fmt::format("[[{}]] lacks '{}'", name_, key), fmt::format("add {} = ...", key));
    return *node;
  }

  int integer(const char* key, int minimum) const {
    const auto value = at(key).value_exact<std::int64_t>();
    if (!value || *value < minimum || *value > 2147483647) fail(at(key), fmt::format("'{}' must be an integer of at least {}", key, minimum), "");
    return static_cast<int>(*value);
  }
  double number(const char* key) const {
    const auto value = at(key).value<double>();
    if (!value || at(key).is_string() || at(key).is_boolean()) fail(at(key), fmt::format("'{}' must be a number", key), "");
    return *value;
  }
  std::string text(const char* key) const {
    const auto value = at(key).value_exact<std::string>();
    if (!value) fail(at(key), fmt::format("'{}' must be a text", key), "put it in quotes");
    return *value;
  }
  bool boolean(const char* key) const {
    const auto value = at(key).value_exact<bool>();
    if (!value) fail(at(key), fmt::format("'{}' must be true or false", key), "");
    return *value;
  }

  // A quantity with its unit in a text; its parser's complaint gets the place.
  template <typename Parse>
  auto quantity(const char* key, Parse parse) const -> decltype(parse(std::string())) {
    try {
      return parse(text(key));
    } catch (const UsageError& error) {
      fail(at(key), error.what(), error.hint());
    }
  }

  std::int64_t bytes(const char* key) const {
    if (const auto value = at(key).value_exact<std::int64_t>()) return *value;
    return quantity(key, [](const std::string& text) { return parse_bytes(text); });
  }
  double bandwidth(const char* key) const {
    if (at(key).is_number()) return number(key);
    return quantity(key, [](const std::string& text) { return text == "inf" ? std::numeric_limits<double>::infinity() : parse_bandwidth(text); });
  }
  double latency_ms(const char* key) const {
    return quantity(key, [](const std::string& text) { return parse_duration_ms(text); });
  }

 private:
  static std::string joined(const std::set<std::string>& keys) {
    std::string text;
    for (const std::string& key : keys) text += (text.empty() ? "" : ", ") + key;
    return text;
  }
  const toml::table& table_;
  std::string file_, name_;
};

void add_devices(Cluster& cluster, const TableView& view) {
  view.allow({"type", "count", "memory", "speed", "profile"});
  Device device;
  if (view.find("type")) device.type = view.text("type");
  if (view.find("memory")) device.memory_bytes = view.bytes("memory");
  if (view.find("speed")) device.speed = view.number("speed");
  if (view.find("profile")) device.profile = view.text("profile");
  const int count = view.find("count") ? view.integer("count", 1) : 1;
  if (count > 1'000'000) view.fail(fmt::format("{} devices are too many", count), "a million is the most");
  cluster.devices.insert(cluster.devices.end(), static_cast<std::size_t>(count), device);
}

void add_level(Cluster& cluster, const TableView& view) {
  view.allow({"size", "bandwidth", "latency", "shared"});
  Level level;
  level.size = view.integer("size", 1);
  level.bandwidth = view.bandwidth("bandwidth");
  if (view.find("latency")) level.latency_ms = view.latency_ms("latency");
  if (view.find("shared")) level.shared = view.boolean("shared");
  cluster.levels.push_back(level);
}

void add_link(Cluster& cluster, const TableView& view) {
  view.allow({"from", "to", "bandwidth", "latency"});
  Link link;
  link.from = view.integer("from", 0);
  link.to = view.integer("to", 0);
  link.bandwidth = view.bandwidth("bandwidth");
  if (view.find("latency")) link.latency_ms = view.latency_ms("latency");
  cluster.links.push_back(link);
}

// Calls add for each table of the array `key`.
template <typename Add>
void for_each_table(const toml::table& root, const char* key, const std::string& file, Cluster& cluster, Add add) {
  const toml::node* node = root.get(key);
  if (node == nullptr) return;
  const std::string place = fmt::format("{}:{}", file, node->source().begin.line);
  const toml::array* array = node->as_array();
  if (array == nullptr) throw InputError(place, fmt::format("'{}' is no list of tables", key), fmt::format("write [[{}]]", key));
  for (const toml::node& item : *array) {
    const toml::table* table = item.as_table();
    if (table == nullptr) throw InputError(place, fmt::format("'{}' is no list of tables", key), fmt::format("write [[{}]]", key));
    add(cluster, TableView(*table, file, key));
  }
}

toml::table parse(const std::string& text, const std::string& file) {
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& error) {
    throw InputError(fmt::format("{}:{}", file, error.source().begin.line), fmt::format("malformed TOML: {}", error.description()));
  }
}

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << toml::value<std::string>(text);
  return out.str();
}

// The shortest text that gives the same number back; TOML wants a point or an exponent to see a float.
std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string cluster_to_toml(const Cluster& cluster) {
  std::string text;
  for (std::size_t i = 0; i < cluster.devices.size();) {
    const Device& device = cluster.devices[i];
    std::size_t end = i;
    while (end < cluster.devices.size() && cluster.devices[end] == device) ++end;
    text += fmt::format("[[devices]]\ntype = {}\ncount = {}\nmemory = {}\nspeed = {}\n", quoted(device.type), end - i, device.memory_bytes,
                        float_text(device.speed));
    if (!device.profile.empty()) text += fmt::format("profile = {}\n", quoted(device.profile));
    i = end;
  }
  for (const Level& level : cluster.levels)
    text += fmt::format("[[levels]]\nsize = {}\nbandwidth = {}\nlatency = \"{}ms\"\nshared = {}\n", level.size, float_text(level.bandwidth),
                        level.latency_ms, level.shared);
  for (const Link& link : cluster.links)
    text += fmt::format("[[links]]\nfrom = {}\nto = {}\nbandwidth = {}\nlatency = \"{}ms\"\n", link.from, link.to, float_text(link.bandwidth),
                        link.latency_ms);
  return text;
}

Cluster cluster_from_toml(const std::string& text, const std::string& file) {
  const toml::table root = parse(text, file);
  TableView(root, file, "").allow({"devices", "levels", "links", "schema"});
  Cluster cluster;
  for_each_table(root, "devices", file, cluster, add_devices);
  for_each_table(root, "levels", file, cluster, add_level);
  for_each_table(root, "links", file, cluster, add_link);
  validate(cluster, file);
  return cluster;
}

Cluster load_cluster(const std::string& file) { return cluster_from_toml(read_file(file), file == "-" ? "standard input" : file); }

}  // namespace pipedream
