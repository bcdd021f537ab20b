#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace pipedream {

struct ControlOptions {
  int rank = 0, world_size = 1;
  std::string address = "127.0.0.1";  ///< of rank 0; it listens there and nowhere else
  int port = 29500;                   ///< 0 on rank 0: a free one, see ControlGroup::port
  std::string interface;              ///< network interface to use; empty: the one that the route to `address` takes
  std::string token;                  ///< of the run, equal on all ranks
  std::string version;                ///< of the program
  int ranks_here = 1;                 ///< ranks that live in this process: the one of them that compares settings speaks for all
  int deputy = 1;                     ///< rank that speaks to the user when the process of rank 0 is gone
  std::chrono::milliseconds deadline{30000};
};

/// How the processes of one run meet, tell each other how they are, and stop together. Separate from the transport of tensors, so that it works
/// when that one is stuck.
///
/// Every process beats a few times a second and says what it is doing; when a process is gone (its connection ends), or one calls abort(),
/// all learn of it with their next beat.
class ControlGroup {
 public:
  /// Starts the server on rank 0 and waits until all ranks are here.
  /// @throws RankError: not all came within the deadline (who is missing), the port is in use, another version, another world size
  [[nodiscard]] static std::shared_ptr<ControlGroup> join(const ControlOptions& options);
  /// join() for each of the `ranks_here` ranks that begin with `options.rank`, at the same time, because each waits for all others.
  [[nodiscard]] static std::vector<std::shared_ptr<ControlGroup>> join_all(const ControlOptions& options);
  ~ControlGroup();  ///< leaves the group
  ControlGroup(const ControlGroup&) = delete;
  ControlGroup& operator=(const ControlGroup&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int world_size() const;
  [[nodiscard]] std::chrono::milliseconds deadline() const;
  [[nodiscard]] int port() const;
  /// Numeric address by which this process reaches the others.
  [[nodiscard]] const std::string& local_address() const;

  void set(const std::string& key, const std::string& value);
  /// Waits until a key exists; `what` completes "rank 1 waited 30 s for ...". `patient`: waits as long as the group lives.
  [[nodiscard]] std::string get(const std::string& key, const std::string& what, bool patient = false);
  [[nodiscard]] bool has(const std::string& key);
  std::int64_t add(const std::string& key, std::int64_t number);
  /// Compares a value between the processes: all must bring rank 0's. Called by one rank of each process.
  /// @throws RankError that names both, on all ranks
  void agree(const std::string& what, const std::string& value);

  /// Says what this rank is doing from now on.
  void set_doing(std::string doing);
  /// One line a rank; from the server if it answers.
  [[nodiscard]] std::string describe_ranks();

  /// Ends the run, unless it has ended. Returns the reason that counts, for everybody the same.
  std::string abort(const std::string& reason);
  /// Empty while the run lives.
  [[nodiscard]] std::string abort_reason() const;
  /// Throws RankError if the run has ended.
  void check_alive() const;
  /// Whether this process is the one to show the reason to the user.
  [[nodiscard]] bool is_reporter() const;
  /// Numbers the transports that are made over this group; all ranks make them in one order.
  [[nodiscard]] int count_transport();
  /// Leaves the group, as the destructor does. On rank 0: waits a moment until the others know why it ended.
  void leave();
  /// Adds a call that is made once, on another thread, when the run ends; at once if it has ended. Returns its number for forget_abort().
  std::size_t on_abort(std::function<void()> call);
  void forget_abort(std::size_t number);

 private:
  struct State;
  explicit ControlGroup(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pipedream
