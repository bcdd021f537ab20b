#include <fmt/format.h>

#include <algorithm>

#include "pipedream/schedule/validation.hpp"

namespace pipedream {
namespace {

/// Goes along one rank's list and keeps which versions of its chunks are there.
class VersionReplay {
 public:
  VersionReplay(const Checked& checked, const std::vector<VersionPolicy>& policies, std::vector<int>& used, std::vector<int>& tags)
      : checked_(checked),
        schedule_(checked.schedule),
        policies_(policies),
        used_(used),
        tags_(tags),
        newest_(static_cast<std::size_t>(schedule_.num_chunks()), 0),
        live_(newest_.size(), {0}),
        ahead_(newest_.size()) {}

  /// What is wrong with this action here; empty if nothing.
  std::string next(const Action& action, const Action* following, const std::vector<char>& predicted) {
    const auto c = static_cast<std::size_t>(action.chunk);
    if (action.kind == ActionKind::Step) return step(action, following);
    if (action.kind == ActionKind::Drop) {
      if (action.version == newest_[c]) return "drops the newest version";
      return erase(live_[c], action.version) ? "" : "drops a version that is not there";
    }
    if (action.kind > ActionKind::BackwardWeight && action.kind != ActionKind::Predict) return {};
    if (action.version == Action::kNone) return "names no version";
    if (!is_predicted(predicted, checked_.index, action) && std::find(live_[c].begin(), live_[c].end(), action.version) == live_[c].end())
      return action.version > newest_[c] ? "reads a version that does not exist yet" : "reads a version that was dropped";
    int& used = used_[checked_.index(action.chunk, action.micro_batch, 0)];
    if (action.kind == ActionKind::Predict) {
      ahead_[c].push_back({action.micro_batch, newest_[c] + action.peer});
      return action.version == newest_[c] ? "" : "predicts from a version that is not the newest";
    }
    if (action.kind == ActionKind::Forward && action.slice == 0) {
      used = action.version;
      return wrong_forward(action, c);
    }
    if (policies_[c] == VersionPolicy::None) return action.version == newest_[c] ? "" : "does not read what is there";
    if (action.version != used) return fmt::format("reads version {}, its forward read {}", action.version, used);
    return wrong_backward(action, c);
  }

  /// Versions other than the newest that are still there.
  [[nodiscard]] std::string leftover() const {
    for (std::size_t c = 0; c < live_.size(); ++c)
      if (live_[c].size() > 1)
        return fmt::format("version {} of chunk {} is never dropped", live_[c].front() == newest_[c] ? live_[c].back() : live_[c].front(), c);
    return {};
  }

 private:
  static bool erase(std::vector<int>& from, int version) {
    const auto place = std::find(from.begin(), from.end(), version);
    if (place == from.end()) return false;
    from.erase(place);
    return true;
  }

  std::string step(const Action& action, const Action* following) {
    const auto c = static_cast<std::size_t>(action.chunk);
    if (action.version != newest_[c]) return fmt::format("starts from version {}, the newest is {}", action.version, newest_[c]);
    if (std::find(live_[c].begin(), live_[c].end(), action.version) == live_[c].end()) return "starts from a version that was dropped";
    live_[c].push_back(++newest_[c]);
    // A step may write in place if what it starts from is dropped right after it.
    const bool in_place = following != nullptr && following->kind == ActionKind::Drop && following->chunk == action.chunk && following->version == action.version;
    const auto held = static_cast<int>(live_[c].size()) - (in_place ? 1 : 0);
    if (checked_.has_drops && policies_[c] == VersionPolicy::DoubleBuffer && held > 2) return "needs a third buffer under policy 2bw";
    if (checked_.has_drops && c < checked_.options.max_versions.size() && held > checked_.options.max_versions[c])
      return fmt::format("makes {} versions, {} are allowed", held, checked_.options.max_versions[c]);
    return {};
  }

  [[nodiscard]] std::string wrong_forward(const Action& action, std::size_t c) {
    switch (policies_[c]) {
      case VersionPolicy::DoubleBuffer: {
        const int expected = std::max(action.micro_batch / schedule_.step_micro_batches - 1, 0);
        return action.version == expected ? "" : fmt::format("reads version {}, policy 2bw says {}", action.version, expected);
      }
      case VersionPolicy::VerticalSync: {
        const std::int64_t tag = tags_[static_cast<std::size_t>(action.micro_batch)];
        const auto expected = tag / micro_batches_per_step(schedule_, action.chunk);
        return action.version == expected ? "" : fmt::format("reads version {}, the first chunk's is {}", action.version, expected);
      }
      default:
        return action.version == newest_[c] ? "" : fmt::format("reads version {}, the newest is {}", action.version, newest_[c]);
    }
  }

  [[nodiscard]] std::string wrong_backward(const Action& action, std::size_t c) {
    if (policies_[c] == VersionPolicy::Flush && action.version != newest_[c] && action.kind != ActionKind::Forward)
      return "a step lies between a forward and its backward under policy flush";
    if (policies_[c] == VersionPolicy::Predict && action.kind != ActionKind::Forward) {
      const auto place = std::find_if(ahead_[c].begin(), ahead_[c].end(), [&](const auto& entry) { return entry.first == action.micro_batch; });
      const int expected = place == ahead_[c].end() ? action.version : place->second;
      if (expected != newest_[c])
        return fmt::format("runs after {} steps since its forward, predicted were {}", newest_[c] - action.version, expected - action.version);
      if (place != ahead_[c].end() && (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight) && action.slice == 0)
        ahead_[c].erase(place);
    }
    return {};
  }

  const Checked& checked_;
  const Schedule& schedule_;
  const std::vector<VersionPolicy>& policies_;
  std::vector<int>& used_;
  const std::vector<int>& tags_;
  std::vector<int> newest_;
  std::vector<std::vector<int>> live_;
  std::vector<std::vector<std::pair<int, int>>> ahead_;  ///< per chunk: predicted micro-batch, newest version its backward must meet
};

// Micro-batches that the first chunk's weights have taken in when a micro-batch enters it.
std::vector<int> vertical_tags(const Checked& checked) {
  std::vector<int> tags(static_cast<std::size_t>(checked.schedule.micro_batches), 0);
  for (const auto& list : checked.lists) {
    int steps = 0;
    for (const Action& action : list) {
      if (action.chunk != 0) continue;
      if (action.kind == ActionKind::Step) ++steps;
      if (action.kind == ActionKind::Forward && action.slice == 0)
        tags[static_cast<std::size_t>(action.micro_batch)] = steps * micro_batches_per_step(checked.schedule, 0);
    }
  }
  return tags;
}

}  // namespace

Finding check_versions(const Checked& checked) {
  if (!checked.has_versions) return {};
  const std::vector<VersionPolicy> policies = chunk_policies(checked.schedule);
  std::vector<int> used(checked.index.size, Action::kNone);
  std::vector<int> tags = vertical_tags(checked);
  for (int rank = 0; rank < checked.schedule.num_ranks(); ++rank) {
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    const std::vector<char> predicted = predicted_work(checked.schedule, list);
    VersionReplay replay(checked, policies, used, tags);
    for (std::size_t i = 0; i < list.size(); ++i)
      if (const std::string wrong = replay.next(list[i], i + 1 < list.size() ? &list[i + 1] : nullptr, predicted); !wrong.empty())
        return checked.violation(RuleGroup::Versions, rank, static_cast<int>(i), fmt::format("{} {}", to_string(list[i]), wrong));
    if (checked.has_drops)
      if (const std::string left = replay.leftover(); !left.empty())
        return checked.violation(RuleGroup::Versions, rank, static_cast<int>(list.size()), left);
  }
  const Occupancy peaks = occupancy(checked.schedule);
  for (std::size_t chunk = 0; chunk < peaks.versions.size(); ++chunk) {
    const bool limited = chunk < checked.options.max_versions.size();
    if (limited && peaks.versions[chunk] > checked.options.max_versions[chunk])
      return checked.violation(
          RuleGroup::Versions, -1, -1,
          fmt::format("chunk {} needs {} versions, {} are allowed", chunk, peaks.versions[chunk], checked.options.max_versions[chunk]));
    if (policies[chunk] == VersionPolicy::DoubleBuffer && peaks.versions[chunk] > 2)
      return checked.violation(
          RuleGroup::Versions, -1, -1,
          fmt::format("chunk {} needs {} versions under policy 2bw, which has two: too few micro-batches per step", chunk, peaks.versions[chunk]));
  }
  return {};
}

}  // namespace pipedream
