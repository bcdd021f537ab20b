#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/launch_environment.hpp"
#include "pipedream/core/error.hpp"

/// Ranks as processes: started here, or found from what a launcher has set (docs/processes.md).
namespace pipedream::cli {

struct ProcessFlags {
  std::string transport;  ///< "threads", "gloo"; empty: gloo under a launcher, else threads
  std::string interface;
  std::string ranks_per_process = "1";  ///< of every process, or of each: "2,1"
};

void add_process_options(CLI::App& command, ProcessFlags& flags);

/// Ends the program with a code; what there was to say has been said.
class Reported final : public Error {
 public:
  explicit Reported(ExitCode code) : Error(code, "") {}
};

/// Whether this process is to start the ranks: processes are wanted and no launcher has made them.
[[nodiscard]] bool is_launcher(const ProcessFlags& flags);

/// Starts this program again, once a process, with the same arguments and RANK, WORLD_SIZE, ... set; waits for all. When one fails, the others get a
/// moment to stop by themselves and are killed then. Shows one message. @throws Reported with the code of the rank that failed
void launch_local_ranks(const ProcessFlags& flags, int num_ranks);

/// This process in a run of several: one rank of it, or some.
class ProcessRun {
 public:
  /// Joins the run that the environment describes, with every rank of this process; nothing where all ranks are threads of this process.
  /// @throws RankError, UsageError
  [[nodiscard]] static std::unique_ptr<ProcessRun> join(const ProcessFlags& flags, std::chrono::milliseconds deadline);

  [[nodiscard]] const LaunchEnvironment& environment() const { return environment_; }
  /// Of the first rank of this process, which speaks for it.
  [[nodiscard]] const std::shared_ptr<ControlGroup>& group() const { return groups_.front(); }
  /// Of all ranks of this process, in their order.
  [[nodiscard]] const std::vector<std::shared_ptr<ControlGroup>>& groups() const { return groups_; }
  [[nodiscard]] bool has_rank(int rank) const;
  [[nodiscard]] bool has_rank_0() const { return has_rank(0); }
  /// Ranks of all processes on this host, if they have as many as this one.
  [[nodiscard]] int ranks_on_host() const { return environment_.local_world_size * static_cast<int>(groups_.size()); }
  /// The user has asked for quiet; ranks but the first log nothing anyway.
  [[nodiscard]] bool is_quiet() const { return is_quiet_; }

  /// Runs `body`. When it throws, all ranks end; the one whose reason counts says so (to the launcher if it is ours), and this process ends
  /// here: nothing is waited for that may hang.
  void guard(const std::function<void()>& body);

 private:
  LaunchEnvironment environment_;
  std::vector<std::shared_ptr<ControlGroup>> groups_;
  bool is_quiet_ = false;
};

}  // namespace pipedream::cli
