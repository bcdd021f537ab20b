#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "pipedream/comm/control.hpp"
#include "pipedream/comm/launch_environment.hpp"
#include "pipedream/core/error.hpp"

/// Ranks as processes: started here, or found from what a launcher has set (docs/processes.md).
namespace pipedream::cli {

struct ProcessFlags {
  std::string transport;  ///< "threads", "gloo"; empty: gloo under a launcher, else threads
  std::string interface;
};

void add_process_options(CLI::App& command, ProcessFlags& flags);

/// Ends the program with a code; what there was to say has been said.
class Reported final : public Error {
 public:
  explicit Reported(ExitCode code) : Error(code, "") {}
};

/// Whether this process is to start the ranks: processes are wanted and no launcher has made them.
[[nodiscard]] bool is_launcher(const ProcessFlags& flags);

/// Starts this program again, once a rank, with the same arguments and RANK, WORLD_SIZE, ... set; waits for all. When one fails, the others get a
/// moment to stop by themselves and are killed then. Shows one message. @throws Reported with the code of the rank that failed
void launch_local_ranks(const ProcessFlags& flags, int num_ranks);

/// This process as one rank of a run.
class ProcessRun {
 public:
  /// Joins the run that the environment describes; nothing where ranks are threads of this process. @throws RankError, UsageError
  [[nodiscard]] static std::unique_ptr<ProcessRun> join(const ProcessFlags& flags, std::chrono::milliseconds deadline);

  [[nodiscard]] const LaunchEnvironment& environment() const { return environment_; }
  [[nodiscard]] const std::shared_ptr<ControlGroup>& group() const { return group_; }
  [[nodiscard]] int rank() const { return environment_.rank; }
  /// The user has asked for quiet; ranks but the first log nothing anyway.
  [[nodiscard]] bool is_quiet() const { return is_quiet_; }

  /// Runs `body`. When it throws, all ranks end; the one whose reason counts says so (to the launcher if it is ours), and this process ends
  /// here: nothing is waited for that may hang.
  void guard(const std::function<void()>& body);

 private:
  LaunchEnvironment environment_;
  std::shared_ptr<ControlGroup> group_;
  bool is_quiet_ = false;
};

}  // namespace pipedream::cli
