#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "pipedream/schedule/validation.hpp"

namespace pipedream {
namespace {

struct Transfer {
  std::uint64_t channel;  ///< sending rank, receiving rank
  int rank, index;
};

std::uint64_t channel_between(int from, int to) { return static_cast<std::uint64_t>(from) << 32 | static_cast<std::uint64_t>(to); }

// Number of messages each way that the graph of chunks asks for.
std::int64_t expected_messages(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  std::int64_t count = 0;
  for (const auto& [source, target] : schedule.edges)
    for (int micro_batch = 0; micro_batch < schedule.micro_batches; ++micro_batch)
      if (schedule.rank_of(source, micro_batch) != schedule.rank_of(target, micro_batch)) count += schedule.slices;
  return count;
}

const Action& at(const Checked& checked, const Transfer& transfer) {
  return checked.lists[static_cast<std::size_t>(transfer.rank)][static_cast<std::size_t>(transfer.index)];
}

bool same_message(const Action& send, const Action& receive) {
  return (send.kind == ActionKind::SendActivation) == (receive.kind == ActionKind::ReceiveActivation) && send.chunk == receive.peer &&
         send.peer == receive.chunk && send.micro_batch == receive.micro_batch && send.slice == receive.slice;
}

Finding fail(const Checked& checked, const Transfer& transfer, const std::string& what) {
  return checked.violation(RuleGroup::Matching, transfer.rank, transfer.index, fmt::format("{} {}", to_string(at(checked, transfer)), what));
}

// Chunks have few neighbours, so a message's place among those of its work is (work, neighbour).
Finding check_no_message_twice(const Checked& checked, const std::vector<Transfer>& sends) {
  std::vector<std::vector<std::int32_t>> sent[2];  // by direction and work: chunks at the other end
  for (auto& direction : sent) direction.resize(checked.index.size);
  for (const Transfer& transfer : sends) {
    const Action& action = at(checked, transfer);
    auto& peers = sent[action.kind == ActionKind::SendActivation ? 0 : 1][checked.index(action.chunk, action.micro_batch, action.slice)];
    if (std::find(peers.begin(), peers.end(), action.peer) != peers.end()) return fail(checked, transfer, "is sent twice");
    peers.push_back(action.peer);
  }
  return {};
}

}  // namespace

Finding check_matching(const Checked& checked) {
  if (!checked.has_transfers) return {};
  std::vector<Transfer> sends, receives;
  for (int rank = 0; rank < checked.schedule.num_ranks(); ++rank) {
    const auto& list = checked.lists[static_cast<std::size_t>(rank)];
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!is_transfer(list[i].kind)) continue;
      const int other = checked.schedule.rank_of(list[i].peer, list[i].micro_batch);
      if (is_send(list[i].kind)) sends.push_back({channel_between(rank, other), rank, static_cast<int>(i)});
      else receives.push_back({channel_between(other, rank), rank, static_cast<int>(i)});
    }
  }
  if (Finding found = check_no_message_twice(checked, sends)) return found;
  const auto by_channel = [](const Transfer& a, const Transfer& b) { return a.channel < b.channel; };
  std::stable_sort(sends.begin(), sends.end(), by_channel);
  std::stable_sort(receives.begin(), receives.end(), by_channel);
  for (std::size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i == receives.size() || (i < sends.size() && sends[i].channel < receives[i].channel)) return fail(checked, sends[i], "is never received");
    if (i == sends.size() || receives[i].channel < sends[i].channel) return fail(checked, receives[i], "is never sent");
    if (!same_message(at(checked, sends[i]), at(checked, receives[i])))
      return fail(checked, receives[i],
                  fmt::format("is in the place of {} of rank {}: between two ranks messages are received in the order they are sent",
                              to_string(at(checked, sends[i])), sends[i].rank));
  }
  const std::int64_t expected = 2 * expected_messages(checked);
  if (static_cast<std::int64_t>(sends.size()) != expected)
    return checked.violation(RuleGroup::Matching, -1, -1, fmt::format("{} messages are sent, the chunks need {}", sends.size(), expected));
  return {};
}

Finding check_collectives(const Checked& checked) {
  const Schedule& schedule = checked.schedule;
  if (!checked.has_reductions) return {};
  // Collectives of chunks on the same set of ranks share a group, and a group must see them in one order.
  std::map<std::vector<int>, std::vector<int>> groups;  // ranks, chunks
  for (int chunk = 0; chunk < schedule.num_chunks(); ++chunk) {
    std::vector<int> ranks = schedule.chunk_ranks[static_cast<std::size_t>(chunk)];
    std::sort(ranks.begin(), ranks.end());
    if (ranks.size() > 1) groups[ranks].push_back(chunk);
  }
  for (const auto& [ranks, chunks] : groups) {
    std::vector<Action> order;
    for (const int rank : ranks) {
      const auto& list = checked.lists[static_cast<std::size_t>(rank)];
      std::size_t k = 0;
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != ActionKind::Reduce || !std::binary_search(chunks.begin(), chunks.end(), list[i].chunk)) continue;
        if (rank == ranks.front()) order.push_back(list[i]);
        else if (k >= order.size() || !(order[k] == list[i]))
          return checked.violation(RuleGroup::Collectives, rank, static_cast<int>(i),
                                   fmt::format("{} is in the place of {} on rank {}: all ranks of a group must meet its reductions in one order",
                                               to_string(list[i]), k < order.size() ? to_string(order[k]) : "nothing", ranks.front()));
        ++k;
      }
    }
  }
  return {};
}

}  // namespace pipedream
