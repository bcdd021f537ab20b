#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace pipedream {

/// What a rank can be told to do. The letters are those of torch.distributed.pipelining where it has the action.
enum class ActionKind : std::uint8_t {
  Forward,            ///< F: runs a chunk forward
  Recompute,          ///< R: runs it forward again from its stored input, before its backward
  Backward,           ///< B: the whole backward
  BackwardInput,      ///< I: the part for inputs
  BackwardWeight,     ///< W: the part for weights, any time after I and before the step
  SendActivation,     ///< SEND_F: hands outputs of this chunk to chunk `peer`
  ReceiveActivation,  ///< RECV_F: takes inputs of this chunk from chunk `peer`
  SendGradient,       ///< SEND_B: hands input gradients of this chunk to chunk `peer`
  ReceiveGradient,    ///< RECV_B: takes output gradients of this chunk from chunk `peer`
  Reduce,             ///< REDUCE: sums the gradients of a chunk over its replicas
  Step,               ///< O: optimizer step, writes version + 1 from `version`
  Predict,            ///< P: predicts weights for a forward
  Drop,               ///< D: version `version` is no longer needed
  Wait,               ///< WAIT: joins an asynchronous reduction
};

/// One thing one rank does. Text form: chunk, letter, micro-batch, then what is not default, namely slice,
/// version, peer, joined: "2F0", "1I3", "0O3v2", "0F3s1v2", "0SEND_F3>1", "1RECV_F3<0", "3F1&".
struct Action {
  static constexpr std::int32_t kNone = -1;

  ActionKind kind = ActionKind::Forward;
  std::int32_t chunk = 0;        ///< index in Schedule::chunk_ranks
  std::int32_t micro_batch = 0;  ///< of Step and Reduce: the last micro-batch whose gradient they take
  std::int32_t slice = 0;        ///< part of a sequence; 0 where sequences are not sliced
  std::int32_t version = kNone;  ///< weights read: number of steps of this chunk that made them; kNone before versions are assigned
  std::int32_t peer = kNone;     ///< of sends and receives: the chunk at the other end; of Predict: steps to look ahead
  bool joined = false;           ///< with the next action of its rank: a forward and a backward that overlap, or transfers posted as one group

  bool operator==(const Action&) const = default;
};

/// The letters of a kind: "F", "SEND_F", "O", ...
[[nodiscard]] std::string_view letters(ActionKind kind);
[[nodiscard]] std::string to_string(const Action& action);
/// @throws InputError if the text is no action; `place` leads the message
[[nodiscard]] Action parse_action(std::string_view text, const std::string& place);
std::ostream& operator<<(std::ostream& out, const Action& action);

[[nodiscard]] constexpr bool is_compute(ActionKind kind) {
  return kind <= ActionKind::BackwardWeight || kind == ActionKind::Step || kind == ActionKind::Predict;
}
/// Of the backward in any form: whole, input part or weight part.
[[nodiscard]] constexpr bool is_backward(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::BackwardInput || kind == ActionKind::BackwardWeight;
}
/// Gives the gradient of a chunk's inputs, which is what the chunks before it wait for.
[[nodiscard]] constexpr bool gives_gradient(ActionKind kind) { return kind == ActionKind::Backward || kind == ActionKind::BackwardInput; }
[[nodiscard]] constexpr bool is_send(ActionKind kind) { return kind == ActionKind::SendActivation || kind == ActionKind::SendGradient; }
[[nodiscard]] constexpr bool is_receive(ActionKind kind) { return kind == ActionKind::ReceiveActivation || kind == ActionKind::ReceiveGradient; }
[[nodiscard]] constexpr bool is_transfer(ActionKind kind) { return is_send(kind) || is_receive(kind); }

}  // namespace pipedream
