// Time of the planner over the shipped profiles and over growing chains, as one table. Every plan is checked once by the separate evaluator.
// Usage: bench_plan [folder of profiles]; the default is ../shared/data/profiles.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "pipedream/core/error.hpp"
#include "pipedream/plan/planner.hpp"

namespace {

using namespace pipedream;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

long peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

void row(const std::string& name, const Profile& profile, const Cluster& cluster, double reduce_overlap = 1) {
  PlanOptions options;
  options.alternatives = false;
  options.reduce_overlap = reduce_overlap;
  const double start = cpu_seconds();
  const Plan plan = make_plan(profile, cluster, options);
  const double seconds = cpu_seconds() - start;
  const double again = evaluate_plan(profile, cluster, options, plan).predicted.period_ms;
  PD_CHECK(std::abs(again - plan.predicted.period_ms) <= 1e-9 * again, "the evaluator finds {}, the planner {}", again, plan.predicted.period_ms);
  const bool chain = name == "chain";
  PD_CHECK(!chain || plan.predicted.certified, "the plan of a chain is not proved");
  std::string shape = plan.shape();
  if (shape.size() > 24) shape = shape.substr(0, 21) + "...";
  fmt::print("{:<16} {:>6} {:>7} {:>12.3f} {:>8.2f} {:>10} {:>12} {:>9}  {}\n", name, profile.num_layers(), cluster.num_devices(),
             plan.predicted.period_ms, 100 * plan.predicted.gap(), fmt::format("{:.3f}", seconds), plan.search.states, peak_kib() / 1024, shape);
  std::fflush(stdout);
}

Profile chain(int layers) {
  Profile profile;
  profile.model = "chain";
  for (int i = 0; i < layers; ++i) {
    LayerProfile layer;
    layer.name = std::to_string(i);
    layer.forward_ms = 1 + (i * 7919 % 13) / 13.0;
    layer.backward_ms = 2 * layer.forward_ms;
    layer.output_bytes = {1'000'000 + i * 104729 % 500'000};
    layer.parameter_bytes = 4'000'000;
    profile.layers.push_back(layer);
    if (i > 0) profile.edges.push_back({i - 1, i, 0});
  }
  return profile;
}

}  // namespace

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "../shared/data/profiles";
  fmt::print("{:<16} {:>6} {:>7} {:>12} {:>8} {:>10} {:>12} {:>9}  {}\n", "model", "layers", "devices", "period ms", "gap %", "CPU s", "states",
             "peak MiB", "shape");
  for (const char* name :
       {"alexnet", "vgg16", "resnet50", "resnet101", "densenet121", "gnmt", "gnmt_large", "inception_v3", "nasnetamobile", "nasnetalarge"}) {
    const auto file = folder / (std::string(name) + ".graph.txt");
    if (!std::filesystem::exists(file)) continue;
    const Profile profile = load_profile(file.string());
    row(name, profile, make_cluster({16}, {1.25e9}, {}, 0));
    row(name, profile, make_cluster({4, 4}, {12e9, 1.25e9}, {}, 0));
    row(name, profile, make_cluster({8, 8}, {12e9, 1.25e9}, {}, 0));
  }
  // Growth with layers and devices; with sums of gradients that cannot hide, which is where replicas do not settle everything.
  for (const int layers : {100, 1000, 10000})
    for (const int devices : {16, 128, 1024, 4096}) {
      row("chain", chain(layers), make_cluster({devices}, {1.25e9}, {}, 0));
      row("chain", chain(layers), make_cluster({devices}, {1.25e9}, {}, 0), 0);
    }
  row("chain", chain(100), make_cluster({8, 8, 16}, {10e9, 2.5e9, 1e9}, {}, 0));
  row("chain", chain(100), make_cluster({8, 8, 16}, {10e9, 2.5e9, 1e9}, {}, 0), 0);
  return 0;
}
