#include "pipedream/comm/rank_threads.hpp"

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <mutex>
#include <thread>

namespace pipedream {

void run_rank_threads(const std::vector<TransportFactory>& transports, RankBoard* board,
                      const std::function<void(std::size_t place, Transport& transport)>& body) {
  std::mutex mutex;  // guards failure
  std::exception_ptr failure;
  const auto run = [&](std::size_t place) {
    std::unique_ptr<Transport> transport;
    try {
      transport = transports[place]();
      body(place, *transport);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
      if (!transport) return;  // it has told the others itself
      if (board != nullptr) board->set(transport->rank(), fmt::format("failed: {}", error.what()));
      transport->abort(error.what());
    }
  };
  {
    std::vector<std::jthread> ranks;
    for (std::size_t place = 0; place < transports.size(); ++place) ranks.emplace_back(run, place);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace pipedream
