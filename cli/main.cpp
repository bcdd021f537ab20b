#include <fmt/format.h>

#include <cstdio>

#include "cli/commands.hpp"
#include "pipedream/core/error.hpp"
#include "pipedream/core/log.hpp"

namespace {

int report(const pipedream::Error& error) {
  fmt::print(stderr, "error: {}\n", error.what());
  if (!error.hint().empty()) fmt::print(stderr, "hint: {}\n", error.hint());
  return static_cast<int>(error.exit_code());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace pipedream;
  try {
    CLI::App app{"pipedream: measure a model, plan the fastest pipeline over your devices, run it, and see that the prediction held", "pipedream"};
    app.require_subcommand(1);
    cli::add_plan(app);
    cli::add_convert(app);
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& done) {  // --help, --version
      return app.exit(done);
    } catch (const CLI::ParseError& error) {
      fmt::print(stderr, "error: {}\nhint: pipedream {} --help\n", error.what(),
                 app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name());
      return static_cast<int>(ExitCode::UsageError);
    }
    return static_cast<int>(ExitCode::Done);
  } catch (const Error& error) {
    return report(error);
  } catch (const std::exception& error) {
    return report(InternalError(fmt::format("unexpected: {}", error.what())));
  }
}
