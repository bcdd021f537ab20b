#include "ranks.hpp"

#include <thread>

#include "pipedream/comm/c10d.hpp"
#include "pipedream/comm/in_process.hpp"
#include "pipedream/comm/socket.hpp"

namespace pipedream::test {
namespace {

template <typename Body>
std::vector<std::string> run_threads(int count, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  threads.clear();
  return errors;
}

void run_body(Transport& transport, const RankBody& body) {
  try {
    body(transport);
  } catch (const std::exception& error) {
    transport.abort(error.what());
    throw;
  }
}

}  // namespace

int free_port() { return listen_at("127.0.0.1", 0).local_port(); }

std::vector<std::string> run_control(int num_ranks, const ControlBody& body, std::chrono::milliseconds deadline) {
  const int port = free_port();
  return run_threads(num_ranks, [&](int rank) {
    ControlOptions options;
    options.rank = rank;
    options.world_size = num_ranks;
    options.port = port;
    options.token = "test";
    options.version = "1";
    options.deadline = deadline;
    body(ControlGroup::join(options));
  });
}

std::vector<std::string> run_ranks(const std::string& transport, int num_ranks, const RankBody& body, std::chrono::milliseconds deadline) {
  if (transport == "threads") {
    auto all = make_in_process_transports(num_ranks, deadline, nullptr);
    return run_threads(num_ranks, [&](int rank) { run_body(*all[static_cast<std::size_t>(rank)], body); });
  }
  return run_control(
      num_ranks,
      [&](const std::shared_ptr<ControlGroup>& group) {
        const auto one = make_c10d_transport(group, transport);
        run_body(*one, body);
      },
      deadline);
}

}  // namespace pipedream::test
