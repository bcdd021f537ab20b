#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

/// Runs of the program pipedream, as a shell would start them.
namespace pipedream::test {

struct Finished {
  int code = -1;  ///< exit code; 128 + signal where it was ended by one
  std::string out, err;
};

class Program {
 public:
  /// Starts it (or, where the first argument is an absolute path, that program) with these arguments, and these environment variables beside an
  /// environment without any launcher's.
  explicit Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& variables = {},
                   const std::filesystem::path& folder = {});
  ~Program();  ///< kills it if it runs
  Program(Program&& other) noexcept;
  Program& operator=(Program&&) = delete;

  [[nodiscard]] pid_t process() const { return process_; }
  void send(int signal) const;
  /// Waits; kills it after the timeout, with code -1.
  [[nodiscard]] Finished wait(std::chrono::milliseconds timeout = std::chrono::seconds(60));
  /// Ranks that it has started, by rank; those that are there.
  [[nodiscard]] std::map<int, pid_t> ranks() const;

 private:
  pid_t process_ = -1;
  std::filesystem::path out_, err_;
};

/// A folder of this test's own, empty.
[[nodiscard]] std::filesystem::path scratch_folder();
/// The arguments of a small training run with synthetic data, and more.
[[nodiscard]] std::vector<std::string> small_run(const std::vector<std::string>& more);
/// Variables of a rank as a launcher sets them.
[[nodiscard]] std::map<std::string, std::string> rank_variables(int rank, int world_size, int port);
[[nodiscard]] int free_tcp_port();
/// A port of 127.0.0.1 at which somebody listens while this lives.
class PortInUse {
 public:
  PortInUse();
  ~PortInUse();
  PortInUse(const PortInUse&) = delete;
  PortInUse& operator=(const PortInUse&) = delete;
  [[nodiscard]] int port() const;

 private:
  int descriptor_;
};
[[nodiscard]] std::string text_of(const std::filesystem::path& file);
/// Waits until `done` holds. False after the timeout.
bool eventually(const std::function<bool()>& done, std::chrono::milliseconds timeout = std::chrono::seconds(30));
[[nodiscard]] bool is_running(pid_t process);

}  // namespace pipedream::test
