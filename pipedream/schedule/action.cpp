#include "pipedream/schedule/action.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <ostream>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

struct KindName {
  std::string_view letters;
  ActionKind kind;
};

// In the order of the enumeration; names that begin alike are told apart by trying the longest first (see find_kind).
constexpr std::array<KindName, 14> kKinds{{
    {"F", ActionKind::Forward},
    {"R", ActionKind::Recompute},
    {"B", ActionKind::Backward},
    {"I", ActionKind::BackwardInput},
    {"W", ActionKind::BackwardWeight},
    {"SEND_F", ActionKind::SendActivation},
    {"RECV_F", ActionKind::ReceiveActivation},
    {"SEND_B", ActionKind::SendGradient},
    {"RECV_B", ActionKind::ReceiveGradient},
    {"REDUCE", ActionKind::Reduce},
    {"O", ActionKind::Step},
    {"P", ActionKind::Predict},
    {"D", ActionKind::Drop},
    {"WAIT", ActionKind::Wait},
}};

constexpr bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || c == '_'; }

class Reader {
 public:
  Reader(std::string_view text, const std::string& place) : text_(text), rest_(text), place_(place) {}

  [[nodiscard]] bool done() const { return rest_.empty(); }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::int32_t number(const char* what) {
    std::int32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || rest_.front() == '-') fail(fmt::format("{} must be a number from 0 to 2147483646", what));
    if (value == INT32_MAX) fail(fmt::format("{} is too large", what));
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  ActionKind kind() {
    std::size_t n = 0;
    while (n < rest_.size() && is_letter(rest_[n])) ++n;
    std::string_view word = rest_.substr(0, n);
    rest_.remove_prefix(n);
    if (word == "REDUCE_GRAD") word = "REDUCE";  // as torch.distributed.pipelining writes it
    for (const KindName& name : kKinds)
      if (name.letters == word) return name.kind;
    fail(word.empty() ? "no kind of action after the chunk" : fmt::format("unknown kind of action '{}'", word.substr(0, 20)));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(
        place_, fmt::format("'{}' is no action: {}", text_.substr(0, 40), what),
        "an action is chunk, kind, micro-batch: 2F0, 1I3, 0O3v2, 0SEND_F3>1; kinds are F R B I W O P D REDUCE WAIT SEND_F RECV_F SEND_B RECV_B");
  }

 private:
  std::string_view text_, rest_;
  const std::string& place_;
};

}  // namespace

std::string_view letters(ActionKind kind) { return kKinds[static_cast<std::size_t>(kind)].letters; }

std::string to_string(const Action& action) {
  std::string text = fmt::format("{}{}{}", action.chunk, letters(action.kind), action.micro_batch);
  if (action.slice != 0) text += fmt::format("s{}", action.slice);
  if (action.version != Action::kNone) text += fmt::format("v{}", action.version);
  if (action.peer != Action::kNone) text += fmt::format("{}{}", is_receive(action.kind) ? '<' : '>', action.peer);
  if (action.joined) text += '&';
  return text;
}

Action parse_action(std::string_view text, const std::string& place) {
  Reader reader(text, place);
  if (text.empty()) reader.fail("it is empty");
  Action action;
  action.chunk = reader.number("the chunk");
  action.kind = reader.kind();
  action.micro_batch = reader.done() && action.kind == ActionKind::Reduce ? 0 : reader.number("the micro-batch");
  if (reader.take('s')) action.slice = reader.number("the slice");
  if (reader.take('v')) action.version = reader.number("the version");
  if (reader.take('>') || reader.take('<')) action.peer = reader.number("the chunk at the other end");
  action.joined = reader.take('&');
  if (!reader.done()) reader.fail("there is more text after it");
  return action;
}

std::ostream& operator<<(std::ostream& out, const Action& action) { return out << to_string(action); }

}  // namespace pipedream
