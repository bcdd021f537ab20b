#include "pipedream/core/error.hpp"
#include "pipedream/schedule/dual_pipe.hpp"

namespace pipedream {

void DualPipeRank::forward(Stream& stream, bool joined) {
  Action action{ActionKind::Forward, stream.chunk, stream.micro_batches[static_cast<std::size_t>(stream.forwards++)]};
  action.joined = joined;
  list_.push_back(action);
}

void DualPipeRank::backward(Stream& stream) {
  list_.push_back({ActionKind::Backward, stream.chunk, stream.micro_batches[static_cast<std::size_t>(stream.backwards++)]});
}

void DualPipeRank::input_part(Stream& stream) {
  const int micro_batch = stream.micro_batches[static_cast<std::size_t>(stream.backwards++)];
  list_.push_back({ActionKind::BackwardInput, stream.chunk, micro_batch});
  waiting_.push_back({ActionKind::BackwardWeight, stream.chunk, micro_batch});
}

void DualPipeRank::weight_part() {
  PD_CHECK(!waiting_.empty(), "no weight part is waiting");
  list_.push_back(waiting_.front());
  waiting_.pop_front();
}

void DualPipeRank::pair(Stream& ahead, Stream& back) {
  forward(ahead, true);
  backward(back);
}

std::vector<Action> DualPipeRank::list(int depth, int place, int pairs) {
  const int outside = depth - place - 1;  // ranks between this one and the middle
  for (int i = 0; i < 2 * outside; ++i) forward(near_);
  for (int i = 0; i < place + 1; ++i) {
    forward(near_);
    forward(far_);
  }
  for (int i = 0; i < outside; ++i) {
    input_part(far_);
    weight_part();
    forward(far_);
  }
  for (int i = 0; i < pairs; ++i) {
    if (i == 0 && outside == 0) {  // in the middle the backward needs the forward's result of the rank beside it
      forward(near_);
      backward(far_);
    } else {
      pair(near_, far_);
    }
    pair(far_, near_);
  }
  for (int i = 0; i < outside; ++i) {
    backward(far_);
    pair(far_, near_);
  }
  bool split = false;
  for (int i = 0; i < place + 1; ++i) {
    if (i == (place + 1) / 2 && place % 2 == 1) split = true;
    if (split) input_part(far_);
    else backward(far_);
    if (i == (place + 1) / 2 && place % 2 == 0) split = true;
    if (split) input_part(near_);
    else backward(near_);
  }
  for (int i = 0; i < outside; ++i) {
    weight_part();
    input_part(near_);
  }
  for (int i = 0; i < place + 1; ++i) weight_part();
  PD_CHECK(waiting_.empty(), "weight parts are left over");
  return std::move(list_);
}

}  // namespace pipedream
