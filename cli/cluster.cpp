#include "pipedream/cluster/cluster.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <sstream>
#include <thread>

#include "cli/commands.hpp"
#include "cli/launch.hpp"
#include "pipedream/comm/hybrid.hpp"
#include "pipedream/comm/measure_links.hpp"
#include "pipedream/comm/rank_threads.hpp"
#include "pipedream/core/bytes.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/core/log.hpp"
#include "pipedream/core/units.hpp"
#include "pipedream/report/table.hpp"

namespace pipedream::cli {
namespace {

struct ClusterFlags {
  ProcessFlags process;
  std::string file, deadline = "60s", output;
  int ranks = 2, threads = 0;
  double seconds = 1;
};

/// One rank's device.
struct DeviceMeasurement {
  double mix_ms = 0;  ///< of the kernel mix
  std::int64_t memory_bytes = 0;
};

struct Measured {
  std::vector<DeviceMeasurement> devices;
  std::vector<LinkMeasurement> links;
};

/// What training spends its time on: products of matrices, convolutions, and passes over memory. The fastest of several runs.
double kernel_mix_ms() {
  const c10::NoGradGuard no_grad;
  const at::Tensor a = at::ones({512, 512}), image = at::ones({8, 32, 32, 32}), kernel = at::ones({32, 32, 3, 3}), memory = at::ones({1 << 20});
  double best = 1e300;
  for (int i = 0; i < 12; ++i) {
    const auto start = std::chrono::steady_clock::now();
    (void)at::mm(a, a);
    (void)at::conv2d(image, kernel, {}, 1, 1);
    (void)memory.add(1).relu();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

/// All ranks measure at the same time, as they will compute at the same time.
Measured measure_rank(Transport& transport, const ClusterFlags& flags, int local_ranks) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  at::set_num_threads(flags.threads > 0 ? flags.threads : std::max(1, cores / local_ranks));
  transport.barrier();
  DeviceMeasurement device;
  device.mix_ms = kernel_mix_ms();
  device.memory_bytes = static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE) / local_ranks;
  ByteWriter writer;
  writer.put(device);
  Measured measured;
  for (const auto& bytes : transport.gather(writer.take())) measured.devices.push_back(ByteReader(bytes).get<DeviceMeasurement>());
  measured.links = measure_links(transport, flags.seconds);
  return measured;
}

/// Bandwidth that a link has in training, where gradients come back while activations go.
double usable_bandwidth(const LinkMeasurement& link) { return link.two_way_bandwidth > 0 ? link.two_way_bandwidth : link.bandwidth; }

/// Rounded to the digits that a measurement has.
double measured_value(double value) { return value > 0 ? std::stod(fmt::format("{:.3g}", value)) : value; }

/// Links that are alike become one level, others a full matrix.
Cluster cluster_of(const Measured& measured) {
  Cluster cluster;
  double slowest = 0;
  for (const auto& device : measured.devices) slowest = std::max(slowest, device.mix_ms);
  for (const auto& device : measured.devices) {
    Device one;
    one.type = "measured";
    // Within 5 % devices are the same: the rest is noise.
    one.speed = device.mix_ms > 0.95 * slowest ? 1 : std::round(100 * slowest / device.mix_ms) / 100;
    one.memory_bytes = device.memory_bytes;
    cluster.devices.push_back(one);
  }
  const auto by_bandwidth = [](const auto& a, const auto& b) { return usable_bandwidth(a) < usable_bandwidth(b); };
  if (measured.links.empty()) {
    cluster.levels.push_back({1, 1e9, 0, false});
    return cluster;
  }
  const auto [least, most] = std::minmax_element(measured.links.begin(), measured.links.end(), by_bandwidth);
  if (usable_bandwidth(*least) < 0.7 * usable_bandwidth(*most) && measured.devices.size() > 2) {
    for (const auto& link : measured.links)
      cluster.links.push_back({link.from, link.to, measured_value(usable_bandwidth(link)), measured_value(link.latency_ms)});
    return cluster;
  }
  double bandwidth = 0, latency = 0, busy = 0;
  int rings = 0;
  for (const auto& link : measured.links) {
    bandwidth += usable_bandwidth(link) / static_cast<double>(measured.links.size());
    latency += link.latency_ms / static_cast<double>(measured.links.size());
    busy += link.busy_bandwidth;
    rings += link.busy_bandwidth > 0;
  }
  // Shared: with all ranks sending, each gets clearly less than two that have the network to themselves.
  const bool shared = rings > 0 && busy / rings < 0.6 * bandwidth;
  cluster.levels.push_back({static_cast<int>(measured.devices.size()), measured_value(bandwidth), measured_value(latency), shared});
  return cluster;
}

std::string render(const Measured& measured) {
  Table devices({"device", "kernel mix", "memory"});
  for (std::size_t i = 0; i < measured.devices.size(); ++i)
    devices.add_row({std::to_string(i), format_ms(measured.devices[i].mix_ms), format_bytes(static_cast<double>(measured.devices[i].memory_bytes))});
  Table links({"from", "to", "latency", "bandwidth", "both ways", "all sending"});
  const auto rate = [](double value) { return value > 0 ? format_bytes(value) + "/s" : std::string("-"); };
  for (const auto& link : measured.links)
    links.add_row({std::to_string(link.from), std::to_string(link.to), format_ms(link.latency_ms), rate(link.bandwidth), rate(link.two_way_bandwidth),
                   rate(link.busy_bandwidth)});
  return devices.text() + "\n" + links.text();
}

void report(const Measured& measured, const ClusterFlags& flags) {
  const Cluster cluster = cluster_of(measured);
  const std::string toml = cluster_to_toml(cluster);
  if (flags.output.empty()) fmt::print("{}\n{}", render(measured), toml);
  else fmt::print("{}", render(measured));
  if (!flags.output.empty()) write_file(flags.output, toml);
}

/// The ranks of this process, a thread each. The whole where the first of them is rank 0.
Measured measure_ranks(const std::vector<TransportFactory>& transports, const ClusterFlags& flags, int ranks_on_host) {
  Measured result;
  run_rank_threads(transports, nullptr, [&](std::size_t place, Transport& transport) {
    Measured own = measure_rank(transport, flags, ranks_on_host);
    if (place == 0) result = std::move(own);
  });
  return result;
}

void run_cluster(const ClusterFlags& flags) {
  if (!flags.file.empty()) {  // describe
    std::ostringstream text;
    text << load_cluster(flags.file);
    fmt::print("{}\n", text.str());
    return;
  }
  if (is_launcher(flags.process)) return launch_local_ranks(flags.process, flags.ranks);
  const auto deadline = std::chrono::milliseconds(static_cast<std::int64_t>(parse_duration_ms(flags.deadline)));
  const auto process = ProcessRun::join(flags.process, deadline);
  if (!process) return report(measure_ranks(make_in_process_factories(flags.ranks, deadline, nullptr), flags, flags.ranks), flags);
  process->guard([&] {
    const Measured measured = measure_ranks(make_hybrid_transports(process->groups(), "gloo"), flags, process->ranks_on_host());
    if (process->has_rank_0()) report(measured, flags);
  });
}

}  // namespace

void add_cluster(CLI::App& app) {
  auto flags = std::make_shared<ClusterFlags>();
  CLI::App* command =
      app.add_subcommand("cluster", "measure devices and the links between them, under a launcher or here, or describe a cluster file");
  command->add_option("FILE", flags->file, "describe this cluster file; nothing is measured");
  command->add_option("-o,--output", flags->output, "write the cluster file (TOML) here; without: to standard output");
  command->add_option("--ranks", flags->ranks, "to start here, where no launcher has")->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--threads", flags->threads, "for the operators of each rank; default: cores / ranks of this host")->check(CLI::Range(0, 1024));
  command->add_option("--seconds", flags->seconds, "for each link")->check(CLI::Range(0.05, 60.0))->capture_default_str();
  command->add_option("--deadline", flags->deadline, "of every wait")->capture_default_str();
  add_process_options(*command, flags->process);
  command->footer(
      "Examples:\n  pipedream cluster --transport gloo --ranks 2 -o cluster.toml\n  mpirun -n 4 -host a,b,c,d -x MASTER_ADDR=a pipedream cluster -o "
      "cluster.toml");
  command->callback([flags] { run_cluster(*flags); });
}

}  // namespace pipedream::cli
