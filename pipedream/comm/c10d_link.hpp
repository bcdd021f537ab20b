#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/torch_c10d.hpp"

/// Internal to pipedream/comm: tagged messages of raw tensors over a process group, with deadlines that name who waited for what.
namespace pipedream {

class C10dLink {
 public:
  using Work = c10d_api::Work;
  using What = std::function<std::string()>;

  explicit C10dLink(std::shared_ptr<ControlGroup> control);
  ~C10dLink();
  C10dLink(const C10dLink&) = delete;
  C10dLink& operator=(const C10dLink&) = delete;

  [[nodiscard]] ControlGroup& control() { return *control_; }
  [[nodiscard]] int rank() const { return control_->rank(); }
  [[nodiscard]] int num_ranks() const { return control_->world_size(); }

  /// Start a transfer. The tensor is contiguous and stays alive until it is waited for. A receive may be longer than what comes.
  [[nodiscard]] Work send(int to, int tag, at::Tensor tensor);
  [[nodiscard]] Work receive(int from, int tag, at::Tensor tensor);

  /// Waits on behalf of the rank: the deadline counts, and `what` ("the gradient of ... (rank 2)") says what for.
  /// @throws RankError when the time is over, the connection breaks or the run has ended
  void wait(const Work& work, const What& what);
  /// Waits as long as the run lives. False if it has ended or the connection broke.
  [[nodiscard]] bool wait_patiently(const Work& work);
  /// Ends the run because of `problem` while waiting for `what`. @throws RankError always
  [[noreturn]] void fail(const std::string& what, double waited_ms, const std::string& problem);

 private:
  /// Lets waits be broken off from another thread.
  struct Waits {
    std::mutex mutex;  // guards both
    std::multiset<c10d::Work*> current;
    bool is_over = false;
  };
  bool run_wait(const Work& work, std::chrono::milliseconds timeout);

  std::shared_ptr<ControlGroup> control_;
  std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
  std::size_t abort_call_ = 0;
  c10::intrusive_ptr<c10d_api::GlooGroup> group_;
};

/// Tags of one pair of ranks: messages of edges below, collectives above; equal tags keep their order.
[[nodiscard]] int message_tag(int source_chunk, int target_chunk, bool gradient, int micro_batch, int part);
enum class CollectiveKind { Barrier, Gather, GatherBytes, Scatter, Collect };
[[nodiscard]] int collective_tag(CollectiveKind kind, const std::vector<int>& group);
inline constexpr int kMessageParts = 64;

/// Replaces tensors by their sums over the group, added in its order. Pieces of a few MB; the transfers of one overlap the sums of others.
void sum_over_group(C10dLink& link, const std::vector<int>& group, std::vector<at::Tensor>& tensors);

}  // namespace pipedream
