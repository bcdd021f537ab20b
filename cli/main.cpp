#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/log.hpp"

namespace {

int report(const pipedream::Error& error) {
  std::fflush(stdout);
  if (*error.what() != '\0') fmt::print(stderr, "error: {}\n", error.what());  // empty: it has been said
  if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
  return static_cast<int>(error.exit_code());
}

void add_commands(CLI::App& app) {
  using namespace pipedream::cli;
#ifdef PIPEDREAM_WITH_TORCH
  add_train(app);
  add_profile(app);
  add_eval(app);
  add_cluster(app);
  add_plan(app, measure_model);
#else
  add_plan(app, {});
#endif
  add_schedule(app);
  add_simulate(app);
  add_report(app);
  add_convert(app);
  add_list(app);
  add_inspect(app);
}

/// PIPEDREAM_TRAIN_LR=0.1 stands for `train --lr 0.1` where the command line does not say otherwise. As arguments, environment variables
/// win over a configuration file and lose against flags.
std::vector<std::string> with_environment(const CLI::App& app, std::vector<std::string> arguments) {
  if (arguments.empty()) return {"--help"};
  const bool is_command = !arguments.front().starts_with("-");
  const auto named = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == arguments.front(); });
  if (named.empty() && is_command)
    throw pipedream::UsageError(fmt::format("unknown subcommand '{}'", arguments.front()), "pipedream --help lists what there is");
  if (named.empty()) return arguments;
  const CLI::App* command = named.front();
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& name : option->get_lnames()) {
      std::string variable = "PIPEDREAM_" + command->get_name() + "_" + name;
      for (char& c : variable) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      const char* value = std::getenv(variable.c_str());
      const std::string flag = "--" + name;
      const bool given =
          std::any_of(arguments.begin(), arguments.end(), [&](const std::string& a) { return a == flag || a.starts_with(flag + "="); });
      if (value != nullptr && !given) arguments.push_back(flag + "=" + value);
    }
  }
  return arguments;
}

int run(int argc, char** argv) {
  using namespace pipedream;
  CLI::App app{"Measures a model, plans the fastest pipeline over your devices, runs it, and shows that the prediction held.", "pipedream"};
  app.fallthrough();
  app.require_subcommand(1);
  bool quiet = false, verbose = false;
  app.add_flag("--quiet", quiet, "warnings and results only");
  app.add_flag("--verbose", verbose, "more of what happens");
  app.set_config("--config", "", "read options from this TOML file: a section per subcommand, a key per option");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.set_version_flag("--version", "pipedream " PIPEDREAM_VERSION);
  app.parse_complete_callback([&] { set_verbosity(quiet ? Verbosity::Quiet : verbose ? Verbosity::Verbose : Verbosity::Normal); });
  add_commands(app);
  app.footer(
      "Examples:\n  pipedream train --model lenet --data fashion-mnist --ranks 2\n  pipedream plan profile.json --devices 4 --bandwidth 10Gbit/s");
  try {
    auto arguments = with_environment(app, {argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
    app.parse(arguments);
  } catch (const CLI::Success& done) {  // --help, --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    const auto commands = app.get_subcommands();
    fmt::print(stderr, "error: {}\nhint: pipedream {}--help lists what there is\n", error.what(),
               commands.empty() ? "" : commands.front()->get_name() + " ");
    return static_cast<int>(ExitCode::UsageError);
  }
  if (std::fflush(stdout) != 0) throw InputError("standard output", "cannot write: the disk is full or the reader is gone");
  return static_cast<int>(ExitCode::Done);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pipedream;
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return report(InternalError(fmt::format("this is a bug in pipedream: {}", error.what())));
  }
}
