#include "pipedream/comm/control_server.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <vector>

#include "pipedream/core/bytes.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/units.hpp"

namespace pipedream {
namespace {

constexpr std::string_view kMagic = "pipedream control 1";
constexpr std::size_t kLargestGreeting = 4096, kLargestFrame = std::size_t{256} << 20;
constexpr auto kTick = std::chrono::milliseconds(50);
/// A process that is gone is declared after this, so that the others' beats say what they wait for.
constexpr auto kMourning = std::chrono::milliseconds(400);
constexpr auto kLinger = std::chrono::milliseconds(1500);

using ServerClock = std::chrono::steady_clock;

double ms_since(ServerClock::time_point then) { return std::chrono::duration<double, std::milli>(ServerClock::now() - then).count(); }

}  // namespace

std::string ControlGreeting::to_frame() const {
  ByteWriter writer;
  writer.put(ControlRequest::Hello);
  writer.put(kMagic);
  writer.put(std::string_view(token));
  writer.put(std::string_view(version));
  writer.put(rank);
  writer.put(world_size);
  writer.put(beats);
  writer.put(std::string_view(process));
  return writer.take();
}

/// Everything below run() belongs to the server's own thread.
struct ControlServer::State {
  struct Connection {
    Socket socket;
    int rank = -1;  // -1: has not said hello
    bool beats = false;
  };
  struct Rank {
    bool is_here = false, has_left = false, is_gone = false;
    std::string process, doing = "starting";
    double age_ms = 0;
    ServerClock::time_point heard = ServerClock::now();
  };

  Socket listener;
  std::string token, version;
  std::vector<Rank> ranks;
  std::map<std::string, std::string> values;
  std::list<Connection> connections;
  int abort_rank = -1;
  std::string abort_reason;
  std::optional<ServerClock::time_point> mourning;  // when the first process was found gone
  std::atomic<bool> closing{false};
  std::thread thread;

  void run() {
    std::optional<ServerClock::time_point> closing_since;
    while (true) {
      if (closing) {
        if (!closing_since) closing_since = ServerClock::now();
        const bool all_left = std::all_of(ranks.begin(), ranks.end(), [](const Rank& r) { return !r.is_here || r.has_left || r.is_gone; });
        if (all_left || ServerClock::now() - *closing_since > kLinger) return;
      }
      if (mourning && abort_rank == -1 && ServerClock::now() - *mourning > kMourning) declare_gone();
      std::vector<pollfd> waiting{{listener.descriptor(), POLLIN, 0}};
      for (const auto& connection : connections) waiting.push_back({connection.socket.descriptor(), POLLIN, 0});
      if (::poll(waiting.data(), waiting.size(), static_cast<int>(kTick.count())) <= 0) continue;
      auto connection = connections.begin();
      for (std::size_t i = 1; i < waiting.size(); ++i) {
        if (waiting[i].revents == 0 || serve(*connection)) {
          ++connection;
          continue;
        }
        lose(*connection);
        connection = connections.erase(connection);
      }
      if (waiting[0].revents != 0) welcome();
    }
  }

  void welcome() {
    Connection connection;
    connection.socket = Socket(::accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.socket.is_open()) return;
    connection.socket.set_timeout(std::chrono::milliseconds(1000));
    connections.push_back(std::move(connection));
  }

  /// One request. False: the connection is to be closed.
  bool serve(Connection& connection) {
    std::string frame;
    if (!connection.socket.receive_frame(frame, connection.rank < 0 ? kLargestGreeting : kLargestFrame)) return false;
    try {
      ByteReader reader(frame);
      const auto kind = reader.get<ControlRequest>();
      if ((kind == ControlRequest::Hello) != (connection.rank < 0)) return false;
      ByteWriter answer;
      answer_to(kind, reader, connection, answer);
      return connection.socket.send_frame(answer.take());
    } catch (const RankError&) {  // cut short: a stranger
      return false;
    }
  }

  void answer_to(ControlRequest kind, ByteReader& reader, Connection& connection, ByteWriter& answer) {
    switch (kind) {
      case ControlRequest::Hello:
        return answer.put(std::string_view(greet(reader, connection)));
      case ControlRequest::Set: {
        const std::string key = reader.get_text();
        values[key] = reader.get_text();
        return answer.put(true);
      }
      case ControlRequest::Get: {
        const auto found = values.find(reader.get_text());
        answer.put(found != values.end());
        return answer.put(std::string_view(found == values.end() ? std::string_view() : std::string_view(found->second)));
      }
      case ControlRequest::Add: {
        auto& text = values[reader.get_text()];
        const auto sum = (text.empty() ? 0 : std::stoll(text)) + reader.get<std::int64_t>();
        text = std::to_string(sum);
        return answer.put(static_cast<std::int64_t>(sum));
      }
      case ControlRequest::Abort: {
        const int rank = reader.get<int>();
        abort(rank, reader.get_text());
        return put_abort(answer);
      }
      case ControlRequest::Beat: {
        auto& rank = ranks[static_cast<std::size_t>(connection.rank)];
        rank.age_ms = reader.get<double>();
        rank.doing = reader.get_text();
        rank.heard = ServerClock::now();
        return put_abort(answer);
      }
      case ControlRequest::Describe:
        return answer.put(std::string_view(describe_ranks()));
      case ControlRequest::Missing: {
        std::vector<int> missing;
        for (std::size_t i = 0; i < ranks.size(); ++i)
          if (!ranks[i].is_here) missing.push_back(static_cast<int>(i));
        return answer.put(std::string_view(fmt::format("{}", fmt::join(missing, ", "))));
      }
      case ControlRequest::Bye:
        ranks[static_cast<std::size_t>(connection.rank)].has_left = true;
        return answer.put(true);
    }
    throw RankError("an unknown request");
  }

  void put_abort(ByteWriter& answer) const {
    answer.put(abort_rank);
    answer.put(std::string_view(abort_reason));
  }

  /// Checks a greeting. What only a rank of this run can get wrong ends the run; a stranger is sent away.
  std::string greet(ByteReader& reader, Connection& connection) {
    if (reader.get_text() != kMagic) return "this is the meeting place of a run of another version of pipedream";
    ControlGreeting hello;
    hello.token = reader.get_text();
    hello.version = reader.get_text();
    hello.rank = reader.get<int>();
    hello.world_size = reader.get<int>();
    hello.beats = reader.get<bool>();
    hello.process = reader.get_text();
    if (hello.token != token) return "another run uses this address and port: set MASTER_PORT to a free port for this one";
    std::string error;
    if (hello.version != version)
      error = fmt::format("rank {} ({}) runs pipedream {}, rank 0 runs {}", hello.rank, hello.process, hello.version, version);
    else if (hello.world_size != static_cast<int>(ranks.size()))
      error =
          fmt::format("rank {} ({}) was started as one of {} ranks, rank 0 as one of {}", hello.rank, hello.process, hello.world_size, ranks.size());
    else if (hello.rank < 0 || hello.rank >= static_cast<int>(ranks.size()))
      error = fmt::format("a process ({}) was started as rank {} of {}", hello.process, hello.rank, ranks.size());
    else if (auto& rank = ranks[static_cast<std::size_t>(hello.rank)]; rank.is_here && rank.process != hello.process)
      error = fmt::format("two processes say that they are rank {}: {} and {}", hello.rank, rank.process, hello.process);
    if (!error.empty()) {
      abort(kServerRank, error);
      return error;
    }
    auto& rank = ranks[static_cast<std::size_t>(hello.rank)];
    rank.is_here = true;
    rank.process = hello.process;
    rank.heard = ServerClock::now();
    connection.rank = hello.rank;
    connection.beats = hello.beats;
    return {};
  }

  void abort(int rank, const std::string& reason) {
    if (abort_rank != -1) return;
    abort_rank = rank;
    abort_reason = reason.empty() ? "aborted" : reason;
  }

  void lose(const Connection& connection) {
    if (!connection.beats) return;
    auto& rank = ranks[static_cast<std::size_t>(connection.rank)];
    if (rank.has_left) return;
    rank.is_gone = true;
    if (!mourning) mourning = ServerClock::now();
  }

  void declare_gone() {
    std::string who;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (ranks[i].is_gone) who += fmt::format("{}rank {} ({})", who.empty() ? "" : " and ", i, ranks[i].process);
    abort(kServerRank, fmt::format("the process of {} is gone\n{}", who, describe_ranks()));
  }

  [[nodiscard]] std::string describe_ranks() const {
    std::string text;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const auto& rank = ranks[i];
      text += fmt::format("{}rank {}: ", i == 0 ? "" : "\n", i);
      if (!rank.is_here) text += "has not started";
      else if (rank.has_left) text += "has finished";
      else if (rank.is_gone) text += fmt::format("its process is gone; it was last {}", rank.doing);
      else text += fmt::format("{} (for {})", rank.doing, format_ms(rank.age_ms + ms_since(rank.heard)));
    }
    return text;
  }
};

ControlServer::ControlServer(Socket listener, std::string token, std::string version, int world_size) : state_(std::make_unique<State>()) {
  state_->listener = std::move(listener);
  state_->token = std::move(token);
  state_->version = std::move(version);
  state_->ranks.resize(static_cast<std::size_t>(world_size));
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

ControlServer::~ControlServer() {
  state_->closing = true;
  state_->thread.join();
}

int ControlServer::port() const { return state_->listener.local_port(); }

}  // namespace pipedream
