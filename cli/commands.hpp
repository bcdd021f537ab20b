#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

/// Subcommands, one file each: every function below adds its options to the application and returns nothing; the callback it sets does the
/// work. Parse, call the library, render. Errors are exceptions of pipedream::Error; main turns them into messages and exit codes.
namespace pipedream::cli {

void add_list(CLI::App& app);
void add_plan(CLI::App& app);
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
