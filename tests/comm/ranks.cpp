#include "ranks.hpp"

#include <algorithm>
#include <thread>

#include "pipedream/comm/hybrid.hpp"
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

std::vector<std::string> run_processes(const std::string& transport, int num_ranks, const ProcessBody& body, std::chrono::milliseconds deadline) {
  const int port = free_port(), ranks_of_one = transport == "hybrid" ? 2 : 1;
  return run_threads((num_ranks + ranks_of_one - 1) / ranks_of_one, [&](int process) {
    ControlOptions options;
    options.rank = process * ranks_of_one;
    options.ranks_here = std::min(ranks_of_one, num_ranks - options.rank);
    options.deputy = ranks_of_one;
    options.world_size = num_ranks;
    options.port = port;
    options.token = "test";
    options.version = "1";
    options.deadline = deadline;
    auto groups = ControlGroup::join_all(options);
    body(groups);
    while (!groups.empty()) groups.pop_back();  // the first may be where all meet
  });
}

std::vector<std::string> run_control(int num_ranks, const ControlBody& body, std::chrono::milliseconds deadline) {
  return run_processes(
      "gloo", num_ranks, [&](const auto& groups) { body(groups[0]); }, deadline);
}

std::vector<std::string> run_ranks(const std::string& transport, int num_ranks, const RankBody& body, std::chrono::milliseconds deadline) {
  std::vector<std::string> errors(static_cast<std::size_t>(num_ranks));
  const auto run_all = [&](const std::vector<TransportFactory>& factories, int first) {
    const auto own = run_threads(static_cast<int>(factories.size()), [&](int i) {
      const auto one = factories[static_cast<std::size_t>(i)]();
      run_body(*one, body);
    });
    std::copy(own.begin(), own.end(), errors.begin() + first);
  };
  if (transport == "threads") {
    run_all(make_in_process_factories(num_ranks, deadline, nullptr), 0);
    return errors;
  }
  const auto failures = run_processes(
      transport, num_ranks, [&](const auto& groups) { run_all(make_hybrid_transports(groups, "gloo"), groups[0]->rank()); }, deadline);
  for (const auto& failure : failures)
    if (!failure.empty() && errors[0].empty()) errors[0] = failure;
  return errors;
}

}  // namespace pipedream::test
