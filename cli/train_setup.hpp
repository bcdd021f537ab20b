#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "pipedream/graph/profile.hpp"
#include "pipedream/model/model.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/micro_batches.hpp"
#include "pipedream/runtime/optimizer.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream::cli {

/// What a run is made from.
struct TrainSetup {
  std::string model = "lenet", loss, data;  ///< data empty: fashion-mnist for the zoo, synthetic data for a model file
  std::string plan_file, profile_file, cluster_file, stages;
  std::optional<Plan> given_plan;  ///< from rank 0, instead of a file
  std::optional<Profile> given_profile;
  int ranks = 2;
  std::string schedule = "1f1b-async", policy;
  int micro_batch = 32, micro_batches = 0;
  int iterations = 10;  ///< of the profiler
  int threads = 0;      ///< per rank
  std::string memory;
  std::string weights;  ///< safetensors file to start from; empty: the model's own initial weights
  OptimizerOptions optimizer;
  std::string precision = "float32";
  std::uint64_t seed = 0;
  int extra_in_flight = 0;
  bool overlap_reductions = false;
};

/// Everything a run needs.
struct Prepared {
  Model model;
  std::string data;  ///< its spec
  Profile profile;
  Plan plan;
  Schedule schedule;  ///< of the first epoch
  SourceFactory sources;
  std::int64_t num_samples = 0, num_parameters = 0;
  int threads_per_rank = 1;
};

void add_setup_options(CLI::App& command, TrainSetup& setup);

/// Opens data and model, profiles and plans where no file is given. Progress on standard error.
[[nodiscard]] Prepared prepare(const TrainSetup& setup);

/// Warns where the BLAS is a build that makes ranks as threads slow each other down.
void warn_about_blas();

/// "2-1-1" to {2, 1, 1}. @throws UsageError for anything else
[[nodiscard]] std::vector<int> parse_shape(const std::string& text);

}  // namespace pipedream::cli
