#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>

#include "pipedream/graph/profile.hpp"

/// Subcommands, one file each: every function below adds its options to the application and returns nothing; the callback it sets does the
/// work. Parse, call the library, render. Errors are exceptions of pipedream::Error; main turns them into messages and exit codes.
namespace pipedream::cli {

/// A model that `plan` is given instead of a profile.
struct ModelToMeasure {
  std::string model, data, loss;
  std::string optimizer = "sgd";
  std::int64_t micro_batch = 32;
};
using MeasureModel = std::function<Profile(const ModelToMeasure&)>;
/// Measures it as `profile` does; where the program is built with torch.
[[nodiscard]] Profile measure_model(const ModelToMeasure& request);

void add_list(CLI::App& app);
/// @param measure  empty in a program without torch: profiles only
void add_plan(CLI::App& app, MeasureModel measure);
void add_schedule(CLI::App& app);
void add_simulate(CLI::App& app);
void add_convert(CLI::App& app);
void add_report(CLI::App& app);
void add_profile(CLI::App& app);
void add_train(CLI::App& app);
void add_eval(CLI::App& app);
void add_cluster(CLI::App& app);
void add_inspect(CLI::App& app);

}  // namespace pipedream::cli
