#include "pipedream/comm/measure_links.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "pipedream/core/bytes.hpp"

namespace pipedream {
namespace {

constexpr int kPings = 30;
constexpr int kMessages = 6;
constexpr std::int64_t kTrialBytes = 256 << 10, kLargestBytes = 16 << 20;

double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Messages between ranks with keys that never repeat; all ranks count alike.
class LinkMeter {
 public:
  explicit LinkMeter(Transport& transport) : transport_(transport) {}

  /// Half a round trip between two ranks, on the first of them.
  double latency_ms(int a, int b) {
    std::vector<double> times;
    const at::Tensor ping = at::zeros({1});
    const int own = transport_.rank(), first = next_;
    next_ += 2 * kPings;
    const auto there = [&](int i) { return MessageKey{a, b, first + 2 * i, false}; };
    const auto back = [&](int i) { return MessageKey{b, a, first + 2 * i + 1, false}; };
    for (int i = 0; i < kPings; ++i) {
      if (own == a) transport_.post_receive(b, back(i));
      if (own == b) transport_.post_receive(a, there(i));
    }
    transport_.barrier();
    for (int i = 0; i < kPings; ++i) {
      const double start = seconds_now();
      if (own == a) {
        transport_.send(b, there(i), {ping}, 0);
        (void)transport_.receive(b, back(i));
      } else if (own == b) {
        transport_.send(a, back(i), transport_.receive(a, there(i)), 0);
      }
      times.push_back((seconds_now() - start) * 500);
    }
    transport_.barrier();
    std::nth_element(times.begin(), times.begin() + kPings / 2, times.end());
    return times[kPings / 2];
  }

  /// Bytes per second at the receivers of these (from, to), all at once; 0 elsewhere.
  double bandwidth(const std::vector<std::pair<int, int>>& links, std::int64_t bytes) {
    ++kind_;  // sizes belong to edges: each measurement is an edge of its own
    const int own = transport_.rank(), first = next_;
    next_ += (kMessages + 1) * static_cast<int>(links.size());
    const auto key = [&](std::size_t link, int i) {
      return MessageKey{links[link].first + kind_ % 64 * 7 + 1, links[link].second, first + static_cast<int>(link) * (kMessages + 1) + i, false};
    };
    const at::Tensor payload = at::zeros({bytes}, at::kByte);
    const auto send = [&](int i) {
      for (std::size_t link = 0; link < links.size(); ++link)
        if (links[link].first == own) transport_.send(links[link].second, key(link, i), {payload}, 0);
    };
    // The first message tells the sizes, so that all others have their receives posted, as in training.
    send(0);
    for (std::size_t link = 0; link < links.size(); ++link) {
      if (links[link].second != own) continue;
      (void)transport_.receive(links[link].first, key(link, 0));
      for (int i = 1; i <= kMessages; ++i) transport_.post_receive(links[link].first, key(link, i));
    }
    transport_.barrier();
    const double start = seconds_now();
    for (int i = 1; i <= kMessages; ++i) send(i);
    double result = 0;
    for (std::size_t link = 0; link < links.size(); ++link) {
      if (links[link].second != own) continue;
      for (int i = 1; i <= kMessages; ++i) (void)transport_.receive(links[link].first, key(link, i));
      result = static_cast<double>(bytes) * kMessages / std::max(1e-9, seconds_now() - start);
    }
    transport_.barrier();
    return result;
  }

 private:
  Transport& transport_;
  int next_ = 0, kind_ = 0;
};

}  // namespace

std::vector<LinkMeasurement> measure_links(Transport& transport, double seconds) {
  const int ranks = transport.num_ranks(), own = transport.rank();
  LinkMeter meter(transport);
  std::vector<LinkMeasurement> measured;  // the links that end here
  // A rank knows the bandwidth of what it receives; the sizes follow from a trial that the receiver tells everybody about.
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      transport.barrier();
      const double latency = meter.latency_ms(from, to);  // of use on the two of them only
      std::vector<at::Tensor> trial{at::full({1}, 0.0, at::kDouble)};
      trial[0].fill_(meter.bandwidth({{from, to}}, kTrialBytes));
      std::vector<int> everybody(static_cast<std::size_t>(ranks));
      for (int r = 0; r < ranks; ++r) everybody[static_cast<std::size_t>(r)] = r;
      transport.all_reduce(everybody, trial);
      const auto bytes = std::clamp(static_cast<std::int64_t>(trial[0].item<double>() * seconds / 3 / kMessages), kTrialBytes, kLargestBytes);
      LinkMeasurement link{from, to, latency, meter.bandwidth({{from, to}}, bytes), meter.bandwidth({{from, to}, {to, from}}, bytes), 0};
      std::vector<std::pair<int, int>> ring;
      for (int r = 0; r < ranks; ++r) ring.emplace_back(r, (r + 1) % ranks);
      if (ranks > 2 && to == (from + 1) % ranks) link.busy_bandwidth = meter.bandwidth(ring, bytes);
      if (own == to) measured.push_back(link);
    }
  ByteWriter writer;
  writer.put(measured);
  std::vector<LinkMeasurement> all;
  for (const auto& bytes : transport.gather(writer.take())) {
    const auto some = ByteReader(bytes).get_vector<LinkMeasurement>();
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); });
  return all;
}

}  // namespace pipedream
