#include "program.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

extern char** environ;

namespace pipedream::test {
namespace {

/// What the tests of this process write; gone at its end.
struct ScratchRoot {
  std::filesystem::path path = std::filesystem::temp_directory_path() / ("pipedream-test-" + std::to_string(::getpid()));
  ScratchRoot() { std::filesystem::create_directories(path); }
  ~ScratchRoot() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchRoot(const ScratchRoot&) = delete;
  ScratchRoot& operator=(const ScratchRoot&) = delete;
};

const std::filesystem::path& scratch_root() {
  static const ScratchRoot root;
  return root.path;
}

bool is_launcher_variable(const std::string& text) {
  for (const char* prefix : {"RANK=", "WORLD_SIZE=", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "PIPEDREAM_"})
    if (text.starts_with(prefix)) return true;
  return false;
}

/// State and parent of a process; nothing if it is not there.
std::optional<std::pair<char, pid_t>> state_of(pid_t process) {
  const std::string text = text_of("/proc/" + std::to_string(process) + "/stat");
  const auto end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return std::make_pair(state, parent);
}

}  // namespace

Program::Program(std::vector<std::string> arguments, const std::map<std::string, std::string>& variables, const std::filesystem::path& folder) {
  static std::atomic<int> count{0};
  const std::string name = "program" + std::to_string(++count);
  out_ = scratch_root() / (name + ".out");
  err_ = scratch_root() / (name + ".err");
  if (!arguments.at(0).starts_with("/")) arguments.insert(arguments.begin(), PIPEDREAM_BINARY_DIR "/pipedream");
  std::vector<std::string> texts;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (!is_launcher_variable(*entry)) texts.emplace_back(*entry);
  for (const auto& [key, value] : variables) texts.push_back(key + "=" + value);
  std::vector<char*> environment, words;
  for (auto& text : texts) environment.push_back(text.data());
  for (auto& word : arguments) words.push_back(word.data());
  environment.push_back(nullptr);
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!folder.empty()) ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  EXPECT_EQ(::posix_spawn(&process_, words[0], &actions, nullptr, words.data(), environment.data()), 0);
  ::posix_spawn_file_actions_destroy(&actions);
}

Program::Program(Program&& other) noexcept : process_(std::exchange(other.process_, -1)), out_(std::move(other.out_)), err_(std::move(other.err_)) {}

Program::~Program() {
  if (process_ <= 0) return;
  // A script that has something to put away gets the time for it.
  ::kill(process_, SIGTERM);
  if (!eventually([&] { return ::waitpid(process_, nullptr, WNOHANG) == process_; }, std::chrono::seconds(2))) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
}

void Program::send(int signal) const { ::kill(process_, signal); }

Finished Program::wait(std::chrono::milliseconds timeout) {
  Finished result;
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(process_, &status, WNOHANG) == process_; }, timeout);
  if (!ended) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, &status, 0);
  }
  if (ended) result.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  process_ = -1;
  result.out = text_of(out_);
  result.err = text_of(err_);
  return result;
}

std::map<int, pid_t> Program::ranks() const {
  std::map<int, pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = std::stoi(name);
    const auto state = state_of(process);
    if (!state || state->second != process_) continue;
    const std::string variables = text_of(entry.path() / "environ");
    const auto at = variables.find(std::string("\0RANK=", 6));
    if (at != std::string::npos) found[std::atoi(variables.c_str() + at + 6)] = process;
  }
  return found;
}

std::filesystem::path scratch_folder() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string(test->test_suite_name()) + "." + test->name();
  for (char& c : name) c = c == '/' ? '_' : c;
  const auto folder = scratch_root() / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::vector<std::string> small_run(const std::vector<std::string>& more) {
  std::vector<std::string> arguments{
      "train",     "--model", "mlp:layers=4,width=32", "--data", "synthetic-images:samples=256,size=8", "--micro-batch", "8", "--no-baseline",
      "--threads", "1",       "--profile-iterations",  "2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::map<std::string, std::string> rank_variables(int rank, int world_size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

PortInUse::PortInUse() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(descriptor_, 1), 0);
}
PortInUse::~PortInUse() { ::close(descriptor_); }
int PortInUse::port() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

int free_tcp_port() { return PortInUse().port(); }

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool eventually(const std::function<bool()>& done, std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool is_running(pid_t process) {
  const auto state = state_of(process);
  return state && state->first != 'Z';
}

}  // namespace pipedream::test
