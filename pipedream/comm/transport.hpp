#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pipedream {

/// Names one message of a pass: what crosses from one chunk to another for one micro-batch, in one direction.
struct MessageKey {
  std::int32_t source_chunk = 0;  ///< of the data flow; a gradient travels from target to source
  std::int32_t target_chunk = 0;
  std::int32_t micro_batch = 0;
  bool gradient = false;
  auto operator<=>(const MessageKey&) const = default;
};

/// As target chunk: not a stage but the weights that rank `source_chunk` keeps for others (asynchronous data parallelism).
inline constexpr std::int32_t kWeightServer = 510;

/// "the activation of micro-batch 7 from stage 0".
[[nodiscard]] std::string describe(const MessageKey& key);

/// Moves tensors between the ranks of one run. One object a rank, used by the rank's compute thread only.
///
/// Every wait has the deadline the transport was made with. When it passes, or a rank has failed, the call throws RankError (code 5); the
/// group is dead from then on and nothing is retried.
class Transport {
 public:
  using Tensors = std::vector<at::Tensor>;

  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int num_ranks() const = 0;

  /// Hands tensors to a rank (also to itself). Never blocks on the receiver, except where `bounded` messages of this edge are already
  /// waiting there; 0 means no bound. The tensors must not be written afterwards. An undefined tensor stands for a gradient of zero.
  virtual void send(int to, const MessageKey& key, Tensors tensors, int bounded) = 0;

  /// Says that receive() will be called for this message, so that its transfer can start. Optional, at most once a message, in any order.
  virtual void post_receive(int from, const MessageKey& key) = 0;

  /// Takes the tensors of a message; waits for them.
  [[nodiscard]] virtual Tensors receive(int from, const MessageKey& key) = 0;

  /// Replaces the tensors by their sums over `group` (ranks, ascending, this one among them), added in the order of the group, so every
  /// member gets the same bits. All members call it with equal shapes, in the same order of calls per group.
  virtual void all_reduce(const std::vector<int>& group, Tensors& tensors) = 0;

  /// Whether start_all_reduce returns before the sum is there.
  [[nodiscard]] virtual bool sums_in_background() const { return false; }
  /// Starts all_reduce, in the memory of these tensors, beside what the rank computes; finish_all_reduces waits for all that were started. All
  /// members start theirs in the same order per group.
  virtual void start_all_reduce(const std::vector<int>& group, const Tensors& tensors) {
    Tensors same = tensors;
    all_reduce(group, same);
  }
  virtual void finish_all_reduces() {}

  /// The same rank for the use of one more thread: send, post_receive, receive and abort, on edges that nobody else uses. Bytes are counted together.
  [[nodiscard]] virtual std::unique_ptr<Transport> for_another_thread() = 0;

  /// Waits until all ranks are here.
  virtual void barrier() = 0;

  /// Brings the bytes of every rank to rank 0, which gets them in the order of ranks; the others get nothing. All ranks call it.
  [[nodiscard]] virtual std::vector<std::string> gather(std::string bytes) = 0;

  /// Tells all ranks that the run is over; their waits throw. The first reason wins.
  virtual void abort(const std::string& reason) = 0;

  /// Payload bytes handed to other ranks so far, by send and by all_reduce (a ring's 2 (R-1)/R of the tensors).
  [[nodiscard]] virtual std::int64_t bytes_sent() const = 0;
};

/// Makes the transport of one rank; called once, on the rank's own thread, because it may wait for the other ranks.
using TransportFactory = std::function<std::unique_ptr<Transport>()>;

}  // namespace pipedream
