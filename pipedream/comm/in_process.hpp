#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/transport.hpp"

namespace pipedream {

/// What each rank is doing, for the message when a wait runs out. Written by the ranks, read by whoever fails first.
class RankBoard {
 public:
  explicit RankBoard(int num_ranks);
  virtual ~RankBoard();
  RankBoard(const RankBoard&) = delete;
  RankBoard& operator=(const RankBoard&) = delete;

  /// `doing` reads after "rank 1: ": "running 0F3", "waiting for the activation of micro-batch 3 from stage 0 (rank 0)".
  virtual void set(int rank, std::string doing);
  /// One line a rank: "rank 1: waiting for ... for 30.0 s".
  [[nodiscard]] std::string describe() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Ranks as threads of one process: tensors are handed over without a copy. Returns one transport a rank; they share their state and may
/// outlive each other. `board` may be null.
[[nodiscard]] std::vector<std::unique_ptr<Transport>> make_in_process_transports(int num_ranks, std::chrono::milliseconds deadline,
                                                                                 std::shared_ptr<RankBoard> board);
/// The same, each to be taken once.
[[nodiscard]] std::vector<TransportFactory> make_in_process_factories(int num_ranks, std::chrono::milliseconds deadline,
                                                                      std::shared_ptr<RankBoard> board);

}  // namespace pipedream
