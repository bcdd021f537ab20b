#include "pipedream/comm/c10d_link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

using LinkClock = std::chrono::steady_clock;

constexpr auto kForever = std::chrono::hours(24 * 365);
/// Between a connection that breaks and the question why: the reason is on its way as well.
constexpr auto kReasonDelay = std::chrono::milliseconds(250);

/// What Gloo needs of a store, by the control group.
class ControlStore final : public c10d::Store {
 public:
  explicit ControlStore(ControlGroup& group) : group_(group), prefix_(fmt::format("c10d/{}/", group.count_transport())) {}
  /// libtorch 2 asks for it, 1.13 does not know it: hence no "override".
  c10::intrusive_ptr<c10d::Store> clone() { return c10::make_intrusive<ControlStore>(*this); }
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override { group_.set(prefix_ + key, {value.begin(), value.end()}); }
  std::vector<std::uint8_t> get(const std::string& key) override {
    const std::string value = group_.get(prefix_ + key, "the other ranks to connect");
    return {value.begin(), value.end()};
  }
  std::int64_t add(const std::string& key, std::int64_t value) override { return group_.add(prefix_ + key, value); }
  bool deleteKey(const std::string&) override { return false; }
  bool check(const std::vector<std::string>& keys) override {
    return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) { return group_.has(prefix_ + key); });
  }
  std::int64_t getNumKeys() override { return 0; }
  void wait(const std::vector<std::string>& keys) override {
    for (const auto& key : keys) (void)get(key);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  ControlGroup& group_;
  std::string prefix_;  // of this process group: a run may make several, one after the other
};

/// The first line of a libtorch or Gloo error, without the place in its sources.
std::string first_line(std::string text) {
  if (const auto end = text.find('\n'); end != std::string::npos) text.resize(end);
  if (text.starts_with("[")) {
    if (const auto end = text.find("] "); end != std::string::npos) text.erase(0, end + 2);
  }
  return text;
}

}  // namespace

C10dLink::C10dLink(std::shared_ptr<ControlGroup> control) : control_(std::move(control)) {
  try {
    const auto store = c10::make_intrusive<ControlStore>(*control_);
    control_->set_doing("connecting with the other ranks");
    group_ = c10d_api::make_gloo_group(store, control_->rank(), control_->world_size(), control_->local_address(), control_->deadline());
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& error) {
    throw RankError(control_->abort(
        fmt::format("rank {} cannot connect with the other ranks: {}\n{}", control_->rank(), first_line(error.what()), control_->describe_ranks())));
  }
  abort_call_ = control_->on_abort([waits = waits_] {
    const std::lock_guard lock(waits->mutex);
    waits->is_over = true;
    for (auto* work : waits->current) work->abort();
  });
}

C10dLink::~C10dLink() { control_->forget_abort(abort_call_); }

C10dLink::Work C10dLink::send(int to, int tag, at::Tensor tensor) {
  std::vector<at::Tensor> one{std::move(tensor)};
  try {
    return group_->send(one, to, tag);
  } catch (const std::exception& error) {
    fail(fmt::format("rank {} to take a message", to), 0, first_line(error.what()));
  }
}

C10dLink::Work C10dLink::receive(int from, int tag, at::Tensor tensor) {
  std::vector<at::Tensor> one{std::move(tensor)};
  try {
    return group_->recv(one, from, tag);
  } catch (const std::exception& error) {
    fail(fmt::format("a message of rank {}", from), 0, first_line(error.what()));
  }
}

bool C10dLink::run_wait(const Work& work, std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(waits_->mutex);
    if (waits_->is_over) return false;
    waits_->current.insert(work.get());
  }
  const auto forget = [&] {
    const std::lock_guard lock(waits_->mutex);
    waits_->current.erase(waits_->current.find(work.get()));
  };
  try {
    const bool done = work->wait(timeout);
    forget();
    return done;
  } catch (...) {
    forget();
    throw;
  }
}

void C10dLink::wait(const Work& work, const What& what) {
  const auto start = LinkClock::now();
  const auto waited_ms = [&] { return std::chrono::duration<double, std::milli>(LinkClock::now() - start).count(); };
  try {
    if (run_wait(work, control_->deadline())) return;
  } catch (const std::exception& error) {
    fail(what(), waited_ms(), first_line(error.what()));
  }
  control_->check_alive();
  fail(what(), waited_ms(), "the wait was broken off");
}

bool C10dLink::wait_patiently(const Work& work) {
  try {
    return run_wait(work, kForever);
  } catch (const std::exception&) {
    return false;  // whoever waits for something that depends on it says why
  }
}

void C10dLink::fail(const std::string& what, double waited_ms, const std::string& problem) {
  const bool is_late = waited_ms >= static_cast<double>(control_->deadline().count());
  if (!is_late) std::this_thread::sleep_for(kReasonDelay);
  control_->check_alive();
  const std::string how = is_late ? "which did not come" : fmt::format("and the connection broke ({})", problem);
  const std::string text =
      fmt::format("rank {} waited {} for {}, {}\n{}", rank(), format_ms(is_late ? static_cast<double>(control_->deadline().count()) : waited_ms),
                  what, how, control_->describe_ranks());
  throw RankError(control_->abort(text), is_late ? "raise --deadline if the ranks are only slow" : "");
}

int message_tag(int source_chunk, int target_chunk, bool gradient, int micro_batch, int part) {
  return (source_chunk % 511) << 22 | (target_chunk % 511) << 13 | (gradient ? 1 : 0) << 12 | (micro_batch % 64) << 6 | part % kMessageParts;
}

int collective_tag(CollectiveKind kind, const std::vector<int>& group) {
  std::uint32_t hash = 2166136261U;
  for (const int rank : group) hash = (hash ^ static_cast<std::uint32_t>(rank)) * 16777619U;
  return 511 << 22 | 511 << 13 | static_cast<int>(kind) << 10 | static_cast<int>((hash ^ hash >> 10 ^ hash >> 20) & 1023U);
}

}  // namespace pipedream
