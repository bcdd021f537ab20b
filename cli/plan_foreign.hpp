#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "pipedream/plan/planner.hpp"

namespace pipedream::cli {

/// Plans a graph of another project in that project's cost model and prints the result. The files say themselves how many devices there are, and so
/// on; options say otherwise.
/// @param command the subcommand `plan` with its options parsed
/// @returns false, with nothing done, if the text is no such graph
/// @throws UsageError for options without a meaning there, InputError, InfeasibleError
bool plan_foreign_graph(const CLI::App& command, const std::string& text, const std::string& file, const PlanOptions& options);

}  // namespace pipedream::cli
