#include "cli/launch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "cli/plan_output.hpp"
#include "pipedream/comm/socket.hpp"
#include "pipedream/core/bytes.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"

extern char** environ;

namespace pipedream::cli {
namespace {

using LaunchClock = std::chrono::steady_clock;

constexpr const char* kReportVariable = "PIPEDREAM_REPORT_DESCRIPTOR";
constexpr const char* kLauncherVariable = "PIPEDREAM_LAUNCHER_PROCESS";
constexpr const char* kTokenVariable = "PIPEDREAM_RUN_TOKEN";
/// What ranks get to stop by themselves once one has failed or has reported a failure; then SIGTERM, then SIGKILL.
constexpr auto kGrace = std::chrono::milliseconds(2000);
constexpr auto kLastGrace = std::chrono::milliseconds(500);

volatile std::sig_atomic_t forwarded_signal = 0;

/// What a rank tells its launcher instead of printing it.
struct Report {
  ExitCode code = ExitCode::RankFailed;
  std::string what, hint;
};

struct Child {
  std::string name;
  pid_t process = -1;
  std::optional<int> status;
  bool was_killed = false;  // by us
};

class LocalRanks {
 public:
  /// @param ranks  of each process
  LocalRanks(const std::vector<int>& ranks, std::string address) : address_(std::move(address)) {
    int first = 0;
    for (std::size_t i = 0; i < ranks.size(); first += ranks[i++]) {
      children_.emplace_back();
      children_[i].name = ranks[i] == 1 ? fmt::format("rank {}", first) : fmt::format("process {} (ranks {} to {})", i, first, first + ranks[i] - 1);
    }
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) throw RankError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
    read_end_ = ends[0];
    write_end_ = ends[1];
    ::fcntl(write_end_, F_SETFD, 0);  // the ranks inherit this one
  }
  ~LocalRanks() {
    for (auto& child : children_)
      if (child.process > 0 && !child.status) {
        ::kill(child.process, SIGKILL);
        ::waitpid(child.process, nullptr, 0);
      }
    ::close(read_end_);
    if (write_end_ >= 0) ::close(write_end_);
  }
  LocalRanks(const LocalRanks&) = delete;
  LocalRanks& operator=(const LocalRanks&) = delete;

  void start() {
    const int port = listen_at(address_, 0).local_port();
    for (std::size_t rank = 0; rank < children_.size(); ++rank) start_rank(static_cast<int>(rank), port);
    ::close(std::exchange(write_end_, -1));
  }

  /// Waits for all ranks. The code to end with.
  ExitCode wait() {
    std::optional<LaunchClock::time_point> failed;
    int sent = 0;  // 1: SIGTERM, 2: SIGKILL
    while (collect() > 0) {
      if (forwarded_signal != 0) {
        for (const auto& child : children_)
          if (!child.status) ::kill(child.process, forwarded_signal);
        forwarded_signal = 0;
      }
      for (const auto& child : children_)
        if (!failed && (!reported_.empty() || (child.status && *child.status != 0))) failed = LaunchClock::now();
      if (failed && sent < 1 && LaunchClock::now() - *failed > kGrace) sent = kill_rest(SIGTERM, 1);
      if (failed && sent < 2 && LaunchClock::now() - *failed > kGrace + kLastGrace) sent = kill_rest(SIGKILL, 2);
      pollfd waiting{read_end_, POLLIN, 0};
      ::poll(&waiting, 1, 20);
      read_reports();
    }
    read_reports();
    return conclude();
  }

 private:
  void start_rank(int rank, int port) {
    std::map<std::string, std::string> variables{
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(children_.size())},
        {"LOCAL_RANK", std::to_string(rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(children_.size())},
        {"MASTER_ADDR", address_},
        {"MASTER_PORT", std::to_string(port)},
        {kTokenVariable, fmt::format("{}.{}", ::getpid(), LaunchClock::now().time_since_epoch().count() / 1000000)},
        {kReportVariable, std::to_string(write_end_)},
        {kLauncherVariable, std::to_string(::getpid())}};
    if (rank == 0) token_ = variables[kTokenVariable];
    variables[kTokenVariable] = token_;
    std::vector<std::string> texts;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string text = *entry;
      if (variables.count(text.substr(0, text.find('='))) == 0) texts.push_back(text);
    }
    for (const auto& [name, value] : variables) texts.push_back(name + "=" + value);
    std::vector<char*> environment, arguments;
    for (auto& text : texts) environment.push_back(text.data());
    environment.push_back(nullptr);
    const std::string line = read_file("/proc/self/cmdline");
    std::vector<std::string> words;
    for (std::size_t at = 0; at < line.size(); at = line.find('\0', at) + 1) words.emplace_back(line.c_str() + at);
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const int error =
        ::posix_spawn(&children_[static_cast<std::size_t>(rank)].process, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data());
    if (error != 0) throw RankError(fmt::format("cannot start rank {}: {}", rank, std::strerror(error)));
  }

  /// Ranks that still run.
  int collect() {
    int running = 0;
    for (auto& child : children_) {
      int status = 0;
      if (child.status) continue;
      if (::waitpid(child.process, &status, WNOHANG) == child.process) child.status = status;
      else ++running;
    }
    return running;
  }

  int kill_rest(int signal, int result) {
    for (auto& child : children_)
      if (!child.status) {
        ::kill(child.process, signal);
        child.was_killed = true;
      }
    return result;
  }

  void read_reports() {
    std::array<char, 4096> part{};
    for (ssize_t n = 0; (n = ::read(read_end_, part.data(), part.size())) > 0;) reported_.append(part.data(), static_cast<std::size_t>(n));
  }

  /// Says in one message why the run failed, if it did.
  ExitCode conclude() {
    std::string ended;
    bool failed = false, interrupted = false;
    for (const auto& child : children_) {
      failed = failed || *child.status != 0;
      if (WIFSIGNALED(*child.status) && child.was_killed) ended += fmt::format("{} did not stop by itself and was killed\n", child.name);
      if (!WIFSIGNALED(*child.status) || child.was_killed) continue;
      ended += fmt::format("{} was ended by signal {} ({})\n", child.name, WTERMSIG(*child.status), ::strsignal(WTERMSIG(*child.status)));
      interrupted = interrupted || WTERMSIG(*child.status) == SIGINT;
    }
    if (!failed) return ExitCode::Done;
    Report report;
    if (!reported_.empty()) {
      ByteReader reader(reported_);
      report.code = reader.get<ExitCode>();
      report.what = reader.get_text();
      report.hint = reader.get_text();
    } else if (ended.empty()) {
      ended = "a rank failed without a word\n";
    }
    while (!ended.empty() && ended.back() == '\n') ended.pop_back();
    fmt::print(stderr, "error: {}{}{}\n", report.what, report.what.empty() || ended.empty() ? "" : "\n", ended);
    if (!report.hint.empty()) fmt::print(stderr, "hint: {}\n", report.hint);
    return report.code;
  }

  std::string address_, token_, reported_;
  std::vector<Child> children_;
  int read_end_ = -1, write_end_ = -1;
};

/// Hands a report to our launcher. False where there is none.
bool tell_launcher(const Error& error) {
  const char* descriptor = std::getenv(kReportVariable);
  if (descriptor == nullptr) return false;
  ByteWriter writer;
  writer.put(error.exit_code());
  writer.put(std::string_view(error.what()));
  writer.put(std::string_view(error.hint()));
  const std::string bytes = writer.take();
  return ::write(std::atoi(descriptor), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

void print_error(const Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
}

/// This process ends with the launcher that started it.
void follow_launcher() {
  const char* launcher = std::getenv(kLauncherVariable);
  if (launcher == nullptr) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != std::atoi(launcher)) std::_Exit(static_cast<int>(ExitCode::RankFailed));
}

[[noreturn]] void end_process(ExitCode code) {
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

/// The numbers of --ranks-per-process. @throws UsageError
std::vector<int> listed_ranks(const ProcessFlags& flags) {
  std::vector<int> ranks;
  for (const auto& word : split_commas({flags.ranks_per_process})) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 1 || number > 4096)
      throw UsageError(fmt::format("--ranks-per-process {} is neither a number nor a list of numbers", flags.ranks_per_process),
                       "write 2, or 2,1 for two ranks in the first process and one in the second");
    ranks.push_back(number);
  }
  return ranks;
}

/// Ranks of each of the processes that were started. @throws UsageError for a list of another length
std::vector<int> ranks_of_started(const ProcessFlags& flags, int num_processes) {
  std::vector<int> ranks = listed_ranks(flags);
  if (ranks.size() == 1) ranks.resize(static_cast<std::size_t>(num_processes), ranks[0]);
  if (ranks.size() != static_cast<std::size_t>(num_processes))
    throw UsageError(
        fmt::format("--ranks-per-process {} is for {} processes, {} were started", flags.ranks_per_process, ranks.size(), num_processes));
  return ranks;
}

/// Ranks of each of the processes to start for a run. @throws UsageError where they do not fit
std::vector<int> ranks_to_start(const ProcessFlags& flags, int num_ranks) {
  std::vector<int> ranks = listed_ranks(flags);
  if (ranks.size() == 1) ranks.resize(static_cast<std::size_t>(std::max(1, num_ranks / ranks[0])), ranks[0]);
  if (std::accumulate(ranks.begin(), ranks.end(), 0) != num_ranks)
    throw UsageError(fmt::format("{} ranks do not fit into processes of {}", num_ranks, flags.ranks_per_process));
  return ranks;
}

}  // namespace

void add_process_options(CLI::App& command, ProcessFlags& flags) {
  command
      .add_option(
          "--transport", flags.transport,
          "threads: ranks are threads of this process; gloo: a process each, started here or by torchrun, mpirun, srun; default: gloo under those")
      ->check(CLI::IsMember({"threads", "gloo"}))
      ->group("Run");
  command.add_option("--interface", flags.interface, "network interface of processes; default: the one that leads to rank 0")->group("Run");
  command.add_option("--ranks-per-process", flags.ranks_per_process, "threads of each process that are ranks: a number, or one a process as 2,1")
      ->capture_default_str()
      ->group("Run");
}

bool is_launcher(const ProcessFlags& flags) { return flags.transport == "gloo" && !find_launch_environment(std::getenv); }

void launch_local_ranks(const ProcessFlags& flags, int num_ranks) {
  LocalRanks ranks(ranks_to_start(flags, num_ranks), flags.interface.empty() ? "127.0.0.1" : address_of_interface(flags.interface));
  struct sigaction action {};
  action.sa_handler = [](int signal) { forwarded_signal = signal; };
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  // A terminal sends SIGINT to the ranks as well.
  action.sa_handler = [](int) {};
  ::sigaction(SIGINT, &action, nullptr);
  ranks.start();
  if (const ExitCode code = ranks.wait(); code != ExitCode::Done) throw Reported(code);
}

std::unique_ptr<ProcessRun> ProcessRun::join(const ProcessFlags& flags, std::chrono::milliseconds deadline) {
  const auto environment = find_launch_environment(std::getenv);
  if (flags.transport == "threads" || !environment || (flags.transport.empty() && environment->world_size < 2)) {
    if (flags.ranks_per_process != "1")
      throw UsageError("--ranks-per-process says how ranks are spread over processes, and there is one process", "add --transport gloo");
    return nullptr;
  }
  follow_launcher();
  auto run = std::make_unique<ProcessRun>();
  run->environment_ = *environment;
  const std::vector<int> ranks = ranks_of_started(flags, environment->world_size);
  const auto own = ranks.begin() + environment->rank;
  ControlOptions options;
  options.rank = std::accumulate(ranks.begin(), own, 0);
  options.world_size = std::accumulate(own, ranks.end(), options.rank);
  options.ranks_here = *own;
  options.deputy = ranks[0];
  options.address = environment->master_address;
  options.port = environment->master_port + (environment->port_is_taken ? 1 : 0);
  options.interface = flags.interface;
  const char* token = std::getenv(kTokenVariable);
  options.token = token != nullptr ? token : environment->token;
  options.version = PIPEDREAM_VERSION;
  options.deadline = deadline;
  try {
    run->groups_ = ControlGroup::join_all(options);
  } catch (const Error& error) {
    // Nobody has told the others: rank 0 speaks where it is the one that knows, else each for itself.
    if (!tell_launcher(error)) print_error(error);
    end_process(error.exit_code());
  }
  run->is_quiet_ = verbosity() == Verbosity::Quiet;
  if (environment->rank != 0) set_verbosity(Verbosity::Quiet);
  return run;
}

bool ProcessRun::has_rank(int rank) const {
  return std::any_of(groups_.begin(), groups_.end(), [rank](const auto& group) { return group->rank() == rank; });
}

void ProcessRun::guard(const std::function<void()>& body) {
  std::optional<Report> report;
  try {
    body();
  } catch (const Error& error) {
    report = {error.exit_code(), error.what(), error.hint()};
  } catch (const std::exception& error) {
    report = {ExitCode::InternalError, fmt::format("this is a bug in pipedream: {}", error.what()), ""};
  }
  if (!report) {
    // The first one may be where all meet: it waits for the others' good-bye.
    while (!groups_.empty()) groups_.pop_back();
    return;
  }
  const std::string reason = group()->abort(report->what);
  const bool is_reporter = std::any_of(groups_.begin(), groups_.end(), [](const auto& one) { return one->is_reporter(); });
  if (is_reporter) {
    // The reason that counts may be the server's, with what all ranks were doing.
    const Error error(report->code, reason, report->hint);
    if (!tell_launcher(error)) print_error(error);
  }
  for (std::size_t i = groups_.size(); i-- > 0;) groups_[i]->leave();
  end_process(is_reporter ? report->code : ExitCode::RankFailed);
}

}  // namespace pipedream::cli
