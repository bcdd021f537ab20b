#include "pipedream/report/chakra.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace pipedream {
namespace {

// Field numbers and values of et_def.proto. The format is small enough to write without the protobuf library.
enum NodeType : std::uint64_t { kCompute = 4, kSend = 5, kReceive = 6, kCollective = 7 };
constexpr int kNodeId = 1, kNodeName = 2, kNodeType = 3, kControlDependencies = 4, kDataDependencies = 5, kDurationMicros = 7, kNodeAttribute = 10;
constexpr int kAttributeName = 1, kAttributeInt64 = 9, kAttributeInt32 = 7, kAttributeBool = 27, kAttributeString = 29;
constexpr std::uint64_t kAllReduce = 0;

void add_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}
void add_number(std::string& out, int field, std::uint64_t value) {
  add_varint(out, static_cast<std::uint64_t>(field) << 3U);
  add_varint(out, value);
}
void add_bytes(std::string& out, int field, const std::string& bytes) {
  add_varint(out, static_cast<std::uint64_t>(field) << 3U | 2U);
  add_varint(out, bytes.size());
  out += bytes;
}
void add_packed(std::string& out, int field, const std::vector<std::uint64_t>& values) {
  if (values.empty()) return;
  std::string bytes;
  for (const std::uint64_t value : values) add_varint(bytes, value);
  add_bytes(out, field, bytes);
}
void add_attribute(std::string& node, const std::string& name, int field, std::uint64_t value) {
  std::string attribute;
  add_bytes(attribute, kAttributeName, name);
  add_number(attribute, field, value);
  add_bytes(node, kNodeAttribute, attribute);
}
void add_message(std::string& file, const std::string& message) {
  add_varint(file, message.size());
  file += message;
}

/// Writes one rank's nodes.
class RankTrace {
 public:
  RankTrace(const Schedule& schedule, const SimulationOptions& options, const std::map<std::pair<int, std::string>, double>& durations, int rank)
      : schedule_(schedule), options_(options), durations_(durations), rank_(rank) {
    std::string metadata;
    add_bytes(metadata, 1, "0.0.4");
    add_message(file_, metadata);
  }

  std::string run() {
    std::uint64_t id = 0;
    for_each_action(schedule_, rank_, [&](const Action& action) {
      if (action.kind == ActionKind::Drop || action.kind == ActionKind::Wait || action.kind == ActionKind::Predict) return;
      add_message(file_, node(action, id++));
    });
    return std::move(file_);
  }

 private:
  std::string node(const Action& action, std::uint64_t id) {
    std::string node;
    add_number(node, kNodeId, id);
    add_bytes(node, kNodeName, to_string(action));
    add_number(node, kNodeType,
               is_send(action.kind)                ? kSend
               : is_receive(action.kind)           ? kReceive
               : action.kind == ActionKind::Reduce ? kCollective
                                                   : kCompute);
    if (id > 0) add_packed(node, kControlDependencies, {id - 1});
    add_packed(node, kDataDependencies, dependencies(action));
    if (is_transfer(action.kind)) add_transfer(node, action);
    else if (action.kind == ActionKind::Reduce) add_reduction(node, action);
    else add_number(node, kDurationMicros, static_cast<std::uint64_t>(std::llround(duration_ms(action) * 1000)));
    add_attribute(node, "is_cpu_op", kAttributeBool, 0);
    made_[{action.kind, action.chunk, action.micro_batch, action.slice}] = id;
    return node;
  }

  [[nodiscard]] std::vector<std::uint64_t> dependencies(const Action& action) const {
    std::vector<std::uint64_t> ids;
    const auto add = [&](ActionKind kind, int chunk) {
      const auto place = made_.find({kind, chunk, action.micro_batch, action.slice});
      if (place != made_.end() && std::find(ids.begin(), ids.end(), place->second) == ids.end()) ids.push_back(place->second);
    };
    switch (action.kind) {
      case ActionKind::Forward:
        add(ActionKind::ReceiveActivation, action.chunk);
        for (const auto& [source, target] : schedule_.edges)
          if (target == action.chunk) add(ActionKind::Forward, source);
        break;
      case ActionKind::Backward:
      case ActionKind::BackwardInput:
        add(ActionKind::Forward, action.chunk);
        add(ActionKind::ReceiveGradient, action.chunk);
        for (const auto& [source, target] : schedule_.edges)
          if (source == action.chunk) {
            add(ActionKind::Backward, target);
            add(ActionKind::BackwardInput, target);
          }
        break;
      case ActionKind::BackwardWeight:
        add(ActionKind::BackwardInput, action.chunk);
        break;
      case ActionKind::SendActivation:
        add(ActionKind::Forward, action.chunk);
        break;
      case ActionKind::SendGradient:
        add(ActionKind::Backward, action.chunk);
        add(ActionKind::BackwardInput, action.chunk);
        break;
      case ActionKind::Step:
        add(ActionKind::Reduce, action.chunk);
        break;
      default:
        break;
    }
    return ids;
  }

  void add_transfer(std::string& node, const Action& action) const {
    const int other = schedule_.rank_of(action.peer, action.micro_batch);
    const bool forward = action.kind == ActionKind::SendActivation || action.kind == ActionKind::ReceiveActivation;
    const bool outward = action.kind == ActionKind::SendActivation || action.kind == ActionKind::ReceiveGradient;
    const std::pair<int, int> edge = outward ? std::pair{action.chunk, action.peer} : std::pair{action.peer, action.chunk};
    const auto place = std::lower_bound(schedule_.edges.begin(), schedule_.edges.end(), edge) - schedule_.edges.begin();
    const double bytes = options_.edge_bytes.empty() ? 0 : options_.edge_bytes[static_cast<std::size_t>(place)] / schedule_.slices;
    const auto tag =
        (static_cast<std::uint64_t>(place) * static_cast<std::uint64_t>(schedule_.micro_batches) + static_cast<std::uint64_t>(action.micro_batch)) *
            2 +
        (forward ? 0 : 1);
    add_attribute(node, "comm_size", kAttributeInt64, static_cast<std::uint64_t>(std::llround(bytes)));
    add_attribute(node, "comm_src", kAttributeInt32, static_cast<std::uint64_t>(is_send(action.kind) ? rank_ : other));
    add_attribute(node, "comm_dst", kAttributeInt32, static_cast<std::uint64_t>(is_send(action.kind) ? other : rank_));
    add_attribute(node, "comm_tag", kAttributeInt32, tag & 0x7FFFFFFFU);
  }
  void add_reduction(std::string& node, const Action& action) const {
    const auto chunk = static_cast<std::size_t>(action.chunk);
    const std::int64_t bytes = options_.chunks.empty() ? 0 : options_.chunks[std::min(chunk, options_.chunks.size() - 1)].reduce_bytes;
    add_attribute(node, "comm_type", kAttributeInt64, kAllReduce);
    add_attribute(node, "comm_size", kAttributeInt64, static_cast<std::uint64_t>(bytes));
    std::string group;
    add_bytes(group, kAttributeName, "pg_name");
    add_bytes(group, kAttributeString, fmt::format("{}", action.chunk));
    add_bytes(node, kNodeAttribute, group);
  }
  [[nodiscard]] double duration_ms(const Action& action) const {
    const auto place = durations_.find({rank_, to_string(action)});
    return place == durations_.end() ? 0 : place->second;
  }

  const Schedule& schedule_;
  const SimulationOptions& options_;
  const std::map<std::pair<int, std::string>, double>& durations_;
  int rank_;
  std::string file_;
  std::map<std::tuple<ActionKind, int, int, int>, std::uint64_t> made_;
};

}  // namespace

std::vector<std::string> chakra_traces(const Schedule& schedule, const SimulationOptions& options) {
  SimulationOptions timed = options;
  timed.keep_trace = true;
  std::map<std::pair<int, std::string>, double> durations;
  for (const TimedAction& action : simulate(schedule, timed).trace.actions)
    durations[{action.rank, to_string(action.action)}] = action.end_ms - action.start_ms;
  std::vector<std::string> files;
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) files.push_back(RankTrace(schedule, options, durations, rank).run());
  return files;
}

}  // namespace pipedream
