// The transport over Gloo against plain sends and receives of the same tensors over the same process group, in one run, in turns. Two processes:
// bench/processes/transport.sh starts them, on one host and on two pretended ones. What arrives is checked; a wrong byte is code 1.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipedream/comm/c10d.hpp"
#include "pipedream/comm/c10d_link.hpp"
#include "pipedream/comm/control.hpp"
#include "pipedream/comm/launch_environment.hpp"
#include "pipedream/core/error.hpp"

namespace {

using namespace pipedream;
using Clock = std::chrono::steady_clock;

constexpr int kRounds = 9;
constexpr int kStream = 4;  // messages one behind the other
constexpr int kPings = 200;

double us_since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// One way to move tensors from rank 0 to rank 1 and back: messages are numbered from 0, in both directions alike.
class Way {
 public:
  virtual ~Way() = default;
  virtual void post(int message, std::int64_t elements) = 0;  ///< of the rank that receives
  virtual void send(int message, const at::Tensor& tensor) = 0;
  virtual at::Tensor receive(int message) = 0;
  virtual void finish() = 0;  ///< sends have left
};

class Plain final : public Way {
 public:
  explicit Plain(C10dLink& link) : link_(link), peer_(1 - link.rank()) {}
  void post(int message, std::int64_t elements) override {
    at::Tensor buffer = at::empty({elements});
    auto work = link_.receive(peer_, tag(message), buffer);
    posted_[message] = {buffer, work};
  }
  void send(int message, const at::Tensor& tensor) override { sends_.push_back(link_.send(peer_, tag(message), tensor)); }
  at::Tensor receive(int message) override {
    auto node = posted_.extract(message);
    link_.wait(node.mapped().second, [] { return std::string("a plain message"); });
    return node.mapped().first;
  }
  void finish() override {
    for (const auto& work : sends_) link_.wait(work, [] { return std::string("a plain message to leave"); });
    sends_.clear();
  }

 private:
  static int tag(int message) { return message_tag(2, 3, false, message, 0); }
  C10dLink& link_;
  int peer_;
  std::map<int, std::pair<at::Tensor, C10dLink::Work>> posted_;
  std::vector<C10dLink::Work> sends_;
};

class Ours final : public Way {
 public:
  Ours(Transport& transport, int edge) : transport_(transport), edge_(edge), peer_(1 - transport.rank()) {}
  void post(int message, std::int64_t) override { transport_.post_receive(peer_, key(message, peer_)); }
  void send(int message, const at::Tensor& tensor) override { transport_.send(peer_, key(message, transport_.rank()), {tensor}, 0); }
  at::Tensor receive(int message) override { return transport_.receive(peer_, key(message, peer_))[0]; }
  void finish() override {}

 private:
  [[nodiscard]] MessageKey key(int message, int from) const { return {edge_ + from, edge_ + 1 - from, message, false}; }
  Transport& transport_;
  int edge_, peer_;
};

bool is_right(const at::Tensor& tensor, int message) { return (tensor == static_cast<float>(message + 1)).all().item<bool>(); }

/// Microseconds on rank 0 for `count` messages to rank 1, until a word of it has come back that all are there.
double one_round(Way& way, Transport& transport, C10dLink& link, std::vector<at::Tensor>& tensors, int first, bool& is_fine) {
  const bool sends = link.rank() == 0;
  const int count = static_cast<int>(tensors.size());
  at::Tensor word = at::zeros({1}, at::kByte);
  const int word_tag = message_tag(4, 5, false, first, 0);
  if (sends) {
    for (int i = 0; i < count; ++i) tensors[static_cast<std::size_t>(i)].fill_(first + i + 1);
  } else {
    for (int i = 0; i < count; ++i) way.post(first + i, tensors[0].numel());
  }
  const auto answer = sends ? link.receive(1, word_tag, word) : C10dLink::Work();
  transport.barrier();
  const auto start = Clock::now();
  double us = 0;
  if (sends) {
    for (int i = 0; i < count; ++i) way.send(first + i, tensors[static_cast<std::size_t>(i)]);
    link.wait(answer, [] { return std::string("the answer"); });
    us = us_since(start);
    way.finish();
  } else {
    std::vector<at::Tensor> received;
    for (int i = 0; i < count; ++i) received.push_back(way.receive(first + i));
    link.wait(link.send(0, word_tag, word), [] { return std::string("the answer to leave"); });
    for (int i = 0; i < count; ++i) is_fine = is_fine && is_right(received[static_cast<std::size_t>(i)], first + i);
  }
  transport.barrier();
  return us;
}

/// Half a round trip, the median.
double ping(Way& way, Transport& transport, std::int64_t elements, bool& is_fine) {
  const bool begins = transport.rank() == 0;
  std::vector<double> times;
  const at::Tensor tensor = at::ones({elements});
  for (int i = 0; i < kPings; ++i) {
    way.post(i, elements);
    transport.barrier();
    const auto start = Clock::now();
    if (begins) way.send(i, tensor);
    const at::Tensor received = way.receive(i);
    if (!begins) way.send(i, received);
    times.push_back(us_since(start) / 2);
    way.finish();
    is_fine = is_fine && is_right(received, 0) && received.numel() == elements;
  }
  return median(times);
}

int run() {
  const auto environment = find_launch_environment([](const char* name) -> const char* { return std::getenv(name); });
  if (!environment || environment->world_size != 2) throw UsageError("this is one of two processes", "bench/processes/transport.sh starts them");
  ControlOptions options;
  options.rank = environment->rank;
  options.world_size = 2;
  options.address = environment->master_address;
  options.port = environment->master_port;
  options.version = "bench";
  options.deadline = std::chrono::seconds(60);
  const auto group = ControlGroup::join(options);
  const auto transport = make_c10d_transport(group, "gloo");
  C10dLink link(group);
  const bool shows = group->rank() == 0;
  bool is_fine = true;
  Plain plain(link);
  int edge = 10, message = 0;
  if (shows)
    fmt::print("{:>10} {:>14} {:>14} {:>7} {:>14} {:>14} {:>7}\n", "size", "plain", "transport", "ratio", "4 in a row", "transport", "ratio");
  for (const std::int64_t bytes : {64LL << 10, 256LL << 10, 1LL << 20, 4LL << 20, 16LL << 20}) {
    Ours ours(*transport, edge += 2);
    double us[2][2];
    for (const int count : {1, kStream}) {
      std::vector<at::Tensor> tensors;
      for (int i = 0; i < count; ++i) tensors.push_back(at::empty({bytes / 4}));
      std::vector<double> times[2];
      for (int round = -1; round < kRounds; ++round)  // the first ones make the buffers and tell the sizes
        for (const int way : {0, 1}) {
          const double one = one_round(way == 0 ? static_cast<Way&>(plain) : ours, *transport, link, tensors, message, is_fine);
          message += count;
          if (round >= 0) times[way].push_back(one / count);
        }
      for (const int way : {0, 1}) us[count == 1 ? 0 : 1][way] = median(times[way]);
    }
    if (!shows) continue;
    fmt::print("{:>6} KiB", bytes >> 10);
    for (const auto& mode : us)
      fmt::print(" {:>9.1f} MB/s {:>9.1f} MB/s {:>7.3f}", static_cast<double>(bytes) / mode[0], static_cast<double>(bytes) / mode[1],
                 mode[0] / mode[1]);
    fmt::print("\n");
  }
  if (shows) fmt::print("\n{:>10} {:>14} {:>14} {:>14}\n", "one way", "plain", "transport", "added");
  for (const std::int64_t elements : {1, 256, 4096}) {
    Ours ours(*transport, edge += 2);
    (void)ping(ours, *transport, elements, is_fine);  // tells the sizes
    const double plain_us = ping(plain, *transport, elements, is_fine), our_us = ping(ours, *transport, elements, is_fine);
    if (shows) fmt::print("{:>8} B {:>11.1f} us {:>11.1f} us {:>11.1f} us\n", elements * 4, plain_us, our_us, our_us - plain_us);
  }
  at::Tensor wrong = at::full({1}, is_fine ? 0.0 : 1.0, at::kDouble);
  std::vector<at::Tensor> sum{wrong};
  transport->all_reduce({0, 1}, sum);
  is_fine = sum[0].item<double>() == 0;
  if (shows) fmt::print("\n{}\n", is_fine ? "every byte arrived as it was sent" : "WRONG: what arrived is not what was sent");
  transport->barrier();
  return is_fine ? 0 : 1;
}

}  // namespace

int main() {
  try {
    at::set_num_threads(1);
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);  // freed blocks are kept, as in the program: else fresh pages are what is measured
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    return run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 5;
  }
}
