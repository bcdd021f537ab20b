#include "pipedream/comm/in_process.hpp"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {

struct RankBoard::State {
  struct Entry {
    std::string doing = "not started";
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  };
  mutable std::mutex mutex;  // guards entries
  std::vector<Entry> entries;
};

RankBoard::RankBoard(int num_ranks) : state_(std::make_unique<State>()) { state_->entries.resize(static_cast<std::size_t>(num_ranks)); }
RankBoard::~RankBoard() = default;

void RankBoard::set(int rank, std::string doing) {
  const std::lock_guard lock(state_->mutex);
  auto& entry = state_->entries[static_cast<std::size_t>(rank)];
  entry.doing = std::move(doing);
  entry.since = std::chrono::steady_clock::now();
}

std::string RankBoard::describe() const {
  const std::lock_guard lock(state_->mutex);
  const auto now = std::chrono::steady_clock::now();
  std::string text;
  for (std::size_t rank = 0; rank < state_->entries.size(); ++rank) {
    const auto& entry = state_->entries[rank];
    const double ms = std::chrono::duration<double, std::milli>(now - entry.since).count();
    text += fmt::format("{}rank {}: {} (for {})", rank == 0 ? "" : "\n", rank, entry.doing, format_ms(ms));
  }
  return text;
}

namespace {

using Clock = std::chrono::steady_clock;

/// How long a wait looks again and again, giving way to other threads, before it sleeps.
constexpr std::chrono::microseconds kSpin{100};

std::int64_t payload_bytes(const Transport::Tensors& tensors) {
  std::int64_t bytes = 0;
  for (const auto& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

/// What the ranks of one process share.
class Hub {
 public:
  Hub(int num_ranks, std::chrono::milliseconds deadline, std::shared_ptr<RankBoard> board)
      : deadline_(deadline), board_(std::move(board)), boxes_(static_cast<std::size_t>(num_ranks)) {}

  [[nodiscard]] int num_ranks() const { return static_cast<int>(boxes_.size()); }

  /// @param is_aside  by a thread beside the rank's own, which the board does not follow
  void put(int from, int to, const MessageKey& key, Transport::Tensors tensors, int bounded, bool is_aside) {
    Box& box = boxes_[static_cast<std::size_t>(to)];
    std::unique_lock lock(box.mutex);
    const Edge edge{from, key.source_chunk, key.target_chunk, key.gradient};
    if (bounded > 0)
      wait(
          lock, box, [&] { return box.waiting[edge] < bounded; }, from, [&] { return fmt::format("room for {} at rank {}", describe(key), to); },
          is_aside);
    check_alive();
    ++box.waiting[edge];
    PD_CHECK(box.messages.emplace(key, std::move(tensors)).second, "{} was sent twice", describe(key));
    box.changed.notify_all();
  }

  Transport::Tensors take(int at, int from, const MessageKey& key, bool is_aside) {
    Box& box = boxes_[static_cast<std::size_t>(at)];
    std::unique_lock lock(box.mutex);
    auto found = box.messages.find(key);
    if (found == box.messages.end()) {
      wait(
          lock, box, [&] { return (found = box.messages.find(key)) != box.messages.end(); }, at,
          [&] { return fmt::format("{} (rank {})", describe(key), from); }, is_aside);
    }
    Transport::Tensors tensors = std::move(found->second);
    box.messages.erase(found);
    --box.waiting[Edge{from, key.source_chunk, key.target_chunk, key.gradient}];
    box.changed.notify_all();
    return tensors;
  }

  /// Members leave their tensors, and each sums one slice of all of them into everybody's tensors.
  void all_reduce(int rank, const std::vector<int>& group, Transport::Tensors& tensors) {
    Meeting& meeting = meeting_of(group);
    const auto what = [&] { return fmt::format("the other replicas of {} in an all-reduce", fmt::join(group, ",")); };
    const auto member = static_cast<std::size_t>(std::find(group.begin(), group.end(), rank) - group.begin());
    meeting.tensors[member] = &tensors;
    meet(meeting, rank, what);
    const auto members = static_cast<std::int64_t>(group.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::int64_t n = tensors[i].numel();
      const std::int64_t begin = n * static_cast<std::int64_t>(member) / members, end = n * static_cast<std::int64_t>(member + 1) / members;
      if (begin == end) continue;
      std::vector<at::Tensor> slices;
      for (const auto* other : meeting.tensors) slices.push_back((*other)[i].view({-1}).slice(0, begin, end));
      at::Tensor sum = slices[0].clone();
      for (std::size_t other = 1; other < slices.size(); ++other) sum.add_(slices[other]);
      for (auto& slice : slices) slice.copy_(sum);
    }
    meet(meeting, rank, what);
  }

  void barrier(int rank) {
    std::vector<int> everybody(boxes_.size());
    for (std::size_t i = 0; i < everybody.size(); ++i) everybody[i] = static_cast<int>(i);
    meet(meeting_of(everybody), rank, [] { return std::string("the other ranks at the end of a pass"); });
  }

  std::vector<std::string> gather(int rank, std::string bytes) {
    {
      const std::lock_guard lock(state_mutex_);
      gathered_.resize(boxes_.size());
      gathered_[static_cast<std::size_t>(rank)] = std::move(bytes);
    }
    barrier(rank);
    std::vector<std::string> result;
    if (rank == 0) result = std::move(gathered_);
    barrier(rank);  // nobody fills the next ones before these are taken
    return result;
  }

  void abort(const std::string& reason) {
    std::vector<Meeting*> meetings;
    {
      const std::lock_guard lock(state_mutex_);
      if (reason_.empty()) reason_ = reason.empty() ? "aborted" : reason;
      for (auto& [group, meeting] : meetings_) meetings.push_back(meeting.get());
    }
    for (auto& box : boxes_) {
      const std::lock_guard lock(box.mutex);
      box.changed.notify_all();
    }
    for (auto* meeting : meetings) {
      const std::lock_guard lock(meeting->mutex);
      meeting->changed.notify_all();
    }
  }

 private:
  /// With its sender: a replica must not use up the room of another, whose message the receiver may want first.
  using Edge = std::tuple<int, int, int, bool>;
  /// Messages on their way to one rank.
  struct Box {
    std::mutex mutex;  // guards messages and waiting
    std::condition_variable changed;
    std::map<MessageKey, Transport::Tensors> messages;
    std::map<Edge, int> waiting;
  };
  /// A barrier of a group, with the tensors that its members brought.
  struct Meeting {
    std::mutex mutex;  // guards arrived and round; tensors are handed over by the barrier itself
    std::condition_variable changed;
    std::vector<Transport::Tensors*> tensors;
    std::size_t arrived = 0;
    std::uint64_t round = 0;
  };

  [[nodiscard]] std::string reason() {
    const std::lock_guard lock(state_mutex_);
    return reason_;
  }
  void check_alive() {
    if (const auto text = reason(); !text.empty()) throw RankError(text);
  }

  Meeting& meeting_of(const std::vector<int>& group) {
    const std::lock_guard lock(state_mutex_);
    auto& meeting = meetings_[group];
    if (!meeting) {
      meeting = std::make_unique<Meeting>();
      meeting->tensors.resize(group.size());
    }
    return *meeting;
  }

  template <typename What>
  void meet(Meeting& meeting, int rank, const What& what) {
    std::unique_lock lock(meeting.mutex);
    if (++meeting.arrived == meeting.tensors.size()) {
      meeting.arrived = 0;
      ++meeting.round;
      meeting.changed.notify_all();
      return;
    }
    wait(
        lock, meeting, [&, round = meeting.round] { return meeting.round != round; }, rank, what);
  }

  /// Waits until `done()`; throws when the run has failed or the deadline has passed. `place` is a Box or a Meeting, its mutex held.
  template <typename Place, typename Done, typename What>
  void wait(std::unique_lock<std::mutex>& lock, Place& place, const Done& done, int rank, const What& what, bool is_aside = false) {
    if (done()) return;
    // In a balanced pipeline what a rank waits for comes within microseconds, sooner than a sleeping thread is woken.
    for (const auto spin_end = Clock::now() + kSpin; Clock::now() < spin_end;) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
      if (done()) return;
    }
    if (board_ && !is_aside) board_->set(rank, "waiting for " + what());
    const auto until = Clock::now() + deadline_;
    while (!done()) {
      check_alive();
      if (place.changed.wait_until(lock, until) == std::cv_status::timeout && !done()) {
        const std::string text =
            fmt::format("rank {} waited {} for {}, which did not come{}{}", rank, format_ms(static_cast<double>(deadline_.count())), what(),
                        board_ ? "\n" : "", board_ ? board_->describe() : "");
        lock.unlock();
        abort(text);
        throw RankError(reason(), "raise --deadline if the ranks are only slow");  // of several that waited as long, the first counts
      }
    }
  }

  std::chrono::milliseconds deadline_;
  std::shared_ptr<RankBoard> board_;
  std::vector<Box> boxes_;
  std::mutex state_mutex_;  // guards all below; taken last, after a box's or a meeting's mutex
  std::string reason_;
  std::vector<std::string> gathered_;
  std::map<std::vector<int>, std::unique_ptr<Meeting>> meetings_;
};

class InProcessTransport : public Transport {
 public:
  InProcessTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  InProcessTransport(const InProcessTransport& other, bool is_aside)
      : hub_(other.hub_), rank_(other.rank_), is_aside_(is_aside), bytes_(other.bytes_) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int num_ranks() const override { return hub_->num_ranks(); }
  void send(int to, const MessageKey& key, Tensors tensors, int bounded) override {
    if (to != rank_) *bytes_ += payload_bytes(tensors);
    hub_->put(rank_, to, key, std::move(tensors), bounded, is_aside_);
  }
  void post_receive(int, const MessageKey&) override {}
  Tensors receive(int from, const MessageKey& key) override { return hub_->take(rank_, from, key, is_aside_); }
  void all_reduce(const std::vector<int>& group, Tensors& tensors) override {
    if (group.size() < 2) return;
    const auto members = static_cast<std::int64_t>(group.size());
    *bytes_ += 2 * payload_bytes(tensors) * (members - 1) / members;
    hub_->all_reduce(rank_, group, tensors);
  }
  std::unique_ptr<Transport> for_another_thread() override { return std::make_unique<InProcessTransport>(*this, true); }
  void barrier() override { hub_->barrier(rank_); }
  std::vector<std::string> gather(std::string bytes) override { return hub_->gather(rank_, std::move(bytes)); }
  void abort(const std::string& reason) override { hub_->abort(reason); }
  [[nodiscard]] std::int64_t bytes_sent() const override { return *bytes_; }

 private:
  std::shared_ptr<Hub> hub_;
  int rank_;
  bool is_aside_ = false;
  std::shared_ptr<std::atomic<std::int64_t>> bytes_ = std::make_shared<std::atomic<std::int64_t>>(0);
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_in_process_transports(int num_ranks, std::chrono::milliseconds deadline,
                                                                   std::shared_ptr<RankBoard> board) {
  auto hub = std::make_shared<Hub>(num_ranks, deadline, std::move(board));
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < num_ranks; ++rank) transports.push_back(std::make_unique<InProcessTransport>(hub, rank));
  return transports;
}

std::vector<TransportFactory> make_in_process_factories(int num_ranks, std::chrono::milliseconds deadline, std::shared_ptr<RankBoard> board) {
  const auto transports =
      std::make_shared<std::vector<std::unique_ptr<Transport>>>(make_in_process_transports(num_ranks, deadline, std::move(board)));
  std::vector<TransportFactory> factories;
  for (std::size_t rank = 0; rank < transports->size(); ++rank) factories.emplace_back([transports, rank] { return std::move((*transports)[rank]); });
  return factories;
}

}  // namespace pipedream
