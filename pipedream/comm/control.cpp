#include "pipedream/comm/control.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "pipedream/comm/control_server.hpp"
#include "pipedream/core/bytes.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

using ControlClock = std::chrono::steady_clock;

constexpr auto kBeat = std::chrono::milliseconds(100);
/// How long a rank that has failed asks the server for the reason before it makes do with its own.
constexpr auto kLastWords = std::chrono::milliseconds(1000);
/// Beyond the deadline, before silence of the server is a failure of its own: who waits for a tensor has more to tell.
constexpr auto kPatience = std::chrono::milliseconds(3000);
constexpr std::size_t kLargestAnswer = std::size_t{256} << 20;

std::string process_name() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}, process {}", host, ::getpid());
}

/// The first line in which two texts differ, of each.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::size_t at = 0;
  while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
  const auto line_of = [&](const std::string& text) {
    const auto start = at == 0 ? std::string::npos : text.rfind('\n', at - 1);
    const auto begin = start == std::string::npos ? 0 : start + 1;
    return text.substr(begin, text.find('\n', at) - begin);
  };
  return {line_of(a), line_of(b)};
}

std::string format_wait(std::chrono::milliseconds time) { return format_ms(static_cast<double>(time.count())); }

}  // namespace

struct ControlGroup::State {
  ControlOptions options;
  std::unique_ptr<ControlServer> server;  // on rank 0; declared first: goes last
  Socket main, beats;
  std::string local_address;
  int port = 0;

  std::mutex request_mutex;  // one request at a time on `main`

  mutable std::mutex mutex;  // guards all below
  std::string doing = "starting";
  ControlClock::time_point doing_since = ControlClock::now();
  int abort_rank = -1, transports = 0;
  std::string reason;
  bool server_is_gone = false, leaving = false;
  std::map<std::size_t, std::function<void()>> abort_calls;
  std::size_t abort_numbers = 0;
  std::condition_variable changed;  // leaving or abort_rank
  std::thread watcher;

  [[nodiscard]] Socket connect(bool beats_channel, ControlClock::time_point until) {
    const std::string from = options.interface.empty() ? std::string() : address_of_interface(options.interface);
    ControlGreeting greeting{options.token, options.version, options.rank, options.world_size, beats_channel, process_name()};
    while (true) {
      Socket socket = try_connect(options.address, port, from, std::chrono::milliseconds(1000));
      std::string answer;
      if (socket.is_open()) {
        socket.set_timeout(std::chrono::milliseconds(3000));
        if (socket.send_frame(greeting.to_frame()) && socket.receive_frame(answer, kLargestAnswer)) {
          ByteReader reader(answer);
          if (const std::string error = reader.get_text(); !error.empty()) throw RankError(error);
          socket.set_timeout(options.deadline + kPatience);
          return socket;
        }
      }
      if (ControlClock::now() > until)
        throw RankError(
            fmt::format("rank {} waited {} for rank 0 to listen at {} port {}", options.rank, format_wait(options.deadline), options.address, port),
            "is rank 0 running, is MASTER_ADDR its address, and does no firewall lie between?");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }

  /// One request; nothing if the server does not answer.
  std::optional<std::string> ask(const std::string& request) {
    const std::lock_guard lock(request_mutex);
    std::string answer;
    if (!main.is_open() || !main.send_frame(request) || !main.receive_frame(answer, kLargestAnswer)) {
      main.close();
      return std::nullopt;
    }
    return answer;
  }

  std::string must_ask(const std::string& request) {
    if (auto answer = ask(request)) return std::move(*answer);
    throw RankError(learn_of_lost_server());
  }

  std::string learn_of_lost_server() {
    learn(0, fmt::format("the process of rank 0, where the others meet, does not answer"), true);
    const std::lock_guard lock(mutex);
    return reason;
  }

  /// The run has ended.
  void learn(int rank, const std::string& why, bool lost_server) {
    std::map<std::size_t, std::function<void()>> calls;
    {
      const std::lock_guard lock(mutex);
      if (abort_rank != -1) return;
      abort_rank = rank;
      reason = why;
      server_is_gone = lost_server;
      calls = std::exchange(abort_calls, {});
    }
    for (const auto& [number, call] : calls) call();
  }

  void watch() {
    std::unique_lock lock(mutex);
    while (!leaving && abort_rank == -1) {
      ByteWriter writer;
      writer.put(ControlRequest::Beat);
      writer.put(std::chrono::duration<double, std::milli>(ControlClock::now() - doing_since).count());
      writer.put(std::string_view(doing));
      lock.unlock();
      std::string answer;
      if (!beats.send_frame(writer.take()) || !beats.receive_frame(answer, kLargestAnswer)) {
        bool is_leaving = false;
        {
          const std::lock_guard again(mutex);
          is_leaving = leaving;
        }
        if (!is_leaving) learn_of_lost_server();
        return;
      }
      ByteReader reader(answer);
      if (const int rank = reader.get<int>(); rank != -1) learn(rank, reader.get_text(), false);
      lock.lock();
      changed.wait_for(lock, kBeat, [this] { return leaving || abort_rank != -1; });
    }
  }
};

ControlGroup::ControlGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::shared_ptr<ControlGroup> ControlGroup::join(const ControlOptions& options) {
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size)
    throw UsageError(fmt::format("rank {} of {} ranks does not exist", options.rank, options.world_size),
                     "RANK counts from 0 and is below WORLD_SIZE");
  auto state = std::make_unique<State>();
  State& s = *state;
  s.options = options;
  s.port = options.port;
  const auto until = ControlClock::now() + options.deadline;
  if (options.rank == 0) {
    s.server = std::make_unique<ControlServer>(listen_at(options.address, options.port), options.token, options.version, options.world_size);
    s.port = s.server->port();
  }
  s.main = s.connect(false, until);
  s.beats = s.connect(true, until);
  s.local_address = s.main.local_address();
  s.watcher = std::thread([&s] { s.watch(); });
  std::shared_ptr<ControlGroup> group(new ControlGroup(std::move(state)));
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    group->check_alive();
    ByteWriter writer;
    writer.put(ControlRequest::Missing);
    const std::string answer = s.must_ask(writer.take());
    const std::string missing = ByteReader(answer).get_text();
    if (missing.empty()) break;
    if (ControlClock::now() > until) {
      const auto count = 1 + std::count(missing.begin(), missing.end(), ',');
      throw RankError(group->abort(fmt::format("rank {} waited {} for {} ranks to start; {} did: missing {}", options.rank,
                                               format_wait(options.deadline), options.world_size, options.world_size - count, missing)),
                      "start all ranks with the same MASTER_ADDR and MASTER_PORT, or raise --deadline");
    }
    std::this_thread::sleep_for(pause);
  }
  return group;
}

std::vector<std::shared_ptr<ControlGroup>> ControlGroup::join_all(const ControlOptions& options) {
  std::vector<std::shared_ptr<ControlGroup>> groups(static_cast<std::size_t>(options.ranks_here));
  std::vector<std::exception_ptr> failures(groups.size());
  const auto join_one = [&](std::size_t i) {
    ControlOptions one = options;
    one.rank += static_cast<int>(i);
    try {
      groups[i] = join(one);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < groups.size(); ++i) threads.emplace_back(join_one, i);
  }
  for (const auto& failure : failures)
    if (failure) std::rethrow_exception(failure);
  return groups;
}

ControlGroup::~ControlGroup() { leave(); }

void ControlGroup::leave() {
  State& s = *state_;
  if (!s.watcher.joinable()) return;
  ByteWriter writer;
  writer.put(ControlRequest::Bye);
  (void)s.ask(writer.take());
  {
    const std::lock_guard lock(s.mutex);
    s.leaving = true;
  }
  s.changed.notify_all();
  s.beats.shut_down();
  s.watcher.join();
  s.main.close();
  s.server.reset();
}

int ControlGroup::rank() const { return state_->options.rank; }
int ControlGroup::world_size() const { return state_->options.world_size; }
std::chrono::milliseconds ControlGroup::deadline() const { return state_->options.deadline; }
int ControlGroup::port() const { return state_->port; }
const std::string& ControlGroup::local_address() const { return state_->local_address; }

void ControlGroup::set(const std::string& key, const std::string& value) {
  ByteWriter writer;
  writer.put(ControlRequest::Set);
  writer.put(std::string_view(key));
  writer.put(std::string_view(value));
  (void)state_->must_ask(writer.take());
}

std::string ControlGroup::get(const std::string& key, const std::string& what, bool patient) {
  const auto start = ControlClock::now();
  set_doing("waiting for " + what);
  ByteWriter writer;
  writer.put(ControlRequest::Get);
  writer.put(std::string_view(key));
  const std::string request = writer.take();
  for (auto pause = std::chrono::milliseconds(1);; pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    check_alive();
    const std::string answer = state_->must_ask(request);
    ByteReader reader(answer);
    if (reader.get<bool>()) return reader.get_text();
    if (!patient && ControlClock::now() - start > deadline())
      throw RankError(abort(fmt::format("rank {} waited {} for {}\n{}", rank(), format_wait(deadline()), what, describe_ranks())));
    std::this_thread::sleep_for(pause);
  }
}

bool ControlGroup::has(const std::string& key) {
  ByteWriter writer;
  writer.put(ControlRequest::Get);
  writer.put(std::string_view(key));
  const std::string answer = state_->must_ask(writer.take());
  return ByteReader(answer).get<bool>();
}

std::int64_t ControlGroup::add(const std::string& key, std::int64_t number) {
  ByteWriter writer;
  writer.put(ControlRequest::Add);
  writer.put(std::string_view(key));
  writer.put(number);
  const std::string answer = state_->must_ask(writer.take());
  return ByteReader(answer).get<std::int64_t>();
}

void ControlGroup::agree(const std::string& what, const std::string& value) {
  if (rank() == 0) set("agree/" + what, value);
  const std::string first = get("agree/" + what, fmt::format("the {} of rank 0", what));
  if (first != value) {
    const auto [own, other] = first_difference(value, first);
    throw RankError(abort(fmt::format("rank {} has another {} than rank 0: {}, rank 0 has {}", rank(), what, own, other)));
  }
  // Nobody goes on before all have compared: else the others would report a rank that is gone.
  const auto start = ControlClock::now();
  (void)add("agreed/" + what, state_->options.ranks_here);
  set_doing(fmt::format("waiting for the others to compare their {}", what));
  for (auto pause = std::chrono::milliseconds(1); add("agreed/" + what, 0) < world_size();
       pause = std::min(2 * pause, std::chrono::milliseconds(50))) {
    check_alive();
    if (ControlClock::now() - start > deadline())
      throw RankError(
          abort(fmt::format("rank {} waited {} for the others to compare their {}\n{}", rank(), format_wait(deadline()), what, describe_ranks())));
    std::this_thread::sleep_for(pause);
  }
}

void ControlGroup::set_doing(std::string doing) {
  const std::lock_guard lock(state_->mutex);
  state_->doing = std::move(doing);
  state_->doing_since = ControlClock::now();
}

std::string ControlGroup::describe_ranks() {
  state_->main.set_timeout(kLastWords);
  ByteWriter writer;
  writer.put(ControlRequest::Describe);
  const auto answer = state_->ask(writer.take());
  return answer ? ByteReader(*answer).get_text() : "rank 0, which knows what the others do, does not answer";
}

std::string ControlGroup::abort(const std::string& reason) {
  if (std::string known = abort_reason(); !known.empty()) return known;
  state_->main.set_timeout(kLastWords);
  ByteWriter writer;
  writer.put(ControlRequest::Abort);
  writer.put(rank());
  writer.put(std::string_view(reason));
  if (const auto answer = state_->ask(writer.take())) {
    ByteReader reader(*answer);
    const int winner = reader.get<int>();
    state_->learn(winner, reader.get_text(), false);
  } else {
    state_->learn(rank(), reason + "\nrank 0, where the others meet, does not answer", true);
  }
  return abort_reason();
}

std::string ControlGroup::abort_reason() const {
  const std::lock_guard lock(state_->mutex);
  return state_->reason;
}

int ControlGroup::count_transport() {
  const std::lock_guard lock(state_->mutex);
  return state_->transports++;
}

void ControlGroup::check_alive() const {
  if (const std::string reason = abort_reason(); !reason.empty()) throw RankError(reason);
}

bool ControlGroup::is_reporter() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->server_is_gone) return rank() == state_->options.deputy || world_size() == 1;
  if (state_->abort_rank == kServerRank) return rank() == 0;
  return state_->abort_rank == -1 || state_->abort_rank == rank();
}

std::size_t ControlGroup::on_abort(std::function<void()> call) {
  {
    const std::lock_guard lock(state_->mutex);
    const std::size_t number = ++state_->abort_numbers;
    if (state_->abort_rank == -1) {
      state_->abort_calls.emplace(number, std::move(call));
      return number;
    }
  }
  call();
  return 0;
}

void ControlGroup::forget_abort(std::size_t number) {
  const std::lock_guard lock(state_->mutex);
  state_->abort_calls.erase(number);
}

}  // namespace pipedream
