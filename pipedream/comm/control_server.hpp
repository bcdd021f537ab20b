#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipedream/comm/socket.hpp"

namespace pipedream {

/// What is said to the control server: a frame with the kind and its fields, as ByteWriter writes them; one frame comes back for each.
enum class ControlRequest : std::uint8_t {
  Hello,     ///< greeting; answers an error text, empty if welcome
  Set,       ///< key, value
  Get,       ///< key; answers found, value
  Add,       ///< key, number; answers the sum
  Abort,     ///< rank, reason; answers the rank and the reason that won
  Beat,      ///< age of it in ms, what the rank is doing; answers rank and reason of an abort (-1 and nothing: all is well)
  Describe,  ///< answers a line a rank: what it is doing
  Missing,   ///< answers the ranks that have not said hello, as text; empty if all have
  Bye,       ///< the rank leaves in order; its connections may close now
};

/// The first thing on every connection.
struct ControlGreeting {
  std::string token;    ///< of the run: tells two runs at once apart
  std::string version;  ///< of the program
  int rank = 0, world_size = 1;
  bool beats = false;   ///< the connection whose end means that the process is gone
  std::string process;  ///< "host, process 123"

  [[nodiscard]] std::string to_frame() const;
};

/// Rank of an abort that the server itself declared, because a process is gone.
inline constexpr int kServerRank = -2;

/// The small place that a run of processes meets at, held by rank 0: keys and values, who is there, who does what, why it ended.
/// Listens at one address only. Answers strangers (another token, another program) with an error and never lets them stop the run.
class ControlServer {
 public:
  ControlServer(Socket listener, std::string token, std::string version, int world_size);
  ~ControlServer();  ///< waits a moment for ranks that have not read the reason of an abort yet
  ControlServer(const ControlServer&) = delete;
  ControlServer& operator=(const ControlServer&) = delete;

  [[nodiscard]] int port() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pipedream
