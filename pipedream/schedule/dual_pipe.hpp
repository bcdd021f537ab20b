#pragma once

#include <deque>
#include <vector>

#include "pipedream/schedule/schedule.hpp"

namespace pipedream {

/// One rank's list in DualPipe's eight steps (2412.19437 as spec methods 4.9 gives them), written for both forms: `depth` and `place` are h and q,
/// h ranks from the nearer end to the middle and the rank's place among them; near and far are the two streams of micro-batches that meet on it.
class DualPipeRank {
 public:
  struct Stream {
    int chunk = 0;
    std::vector<int> micro_batches;
    int forwards = 0, backwards = 0;  ///< done so far
  };
  DualPipeRank(Stream near, Stream far) : near_(std::move(near)), far_(std::move(far)) {}

  /// `pairs` is the count of step 4.
  [[nodiscard]] std::vector<Action> list(int depth, int place, int pairs);

 private:
  void forward(Stream& stream, bool joined = false);
  void backward(Stream& stream);
  void input_part(Stream& stream);
  void weight_part();
  void pair(Stream& ahead, Stream& back);

  Stream near_, far_;
  std::deque<Action> waiting_;  ///< weight parts, first in, first out
  std::vector<Action> list_;
};

}  // namespace pipedream
