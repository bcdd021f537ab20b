#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/transport.hpp"

/// Ranks as threads of the test, on whatever transport.
namespace pipedream::test {

/// Runs `body` on each rank, over "threads", "gloo", or "hybrid". Returns what each threw, empty where nothing. A rank that fails aborts the others,
/// as the trainer does.
using RankBody = std::function<void(Transport&)>;
std::vector<std::string> run_ranks(const std::string& transport, int num_ranks, const RankBody& body,
                                   std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// Joins control groups on 127.0.0.1 at a free port, one thread a "process" ("gloo": of one rank, "hybrid": of two), and runs `body` with its ranks'.
using ProcessBody = std::function<void(const std::vector<std::shared_ptr<ControlGroup>>&)>;
std::vector<std::string> run_processes(const std::string& transport, int num_ranks, const ProcessBody& body,
                                       std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// Joins control groups on 127.0.0.1 at a free port, one thread a rank, and runs `body`.
using ControlBody = std::function<void(const std::shared_ptr<ControlGroup>&)>;
std::vector<std::string> run_control(int num_ranks, const ControlBody& body, std::chrono::milliseconds deadline = std::chrono::seconds(20));

/// A port that was free a moment ago.
int free_port();

}  // namespace pipedream::test
