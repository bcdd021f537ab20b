#include "pipedream/core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace pipedream {
namespace {

std::atomic<Verbosity> current{Verbosity::Normal};

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = std::make_shared<spdlog::logger>("pipedream", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void set_verbosity(Verbosity verbosity) { current = verbosity; }
Verbosity verbosity() { return current; }
void write_log_detail(const std::string& text) { logger().info(text); }
void write_log_info(const std::string& text) { logger().info(text); }
void write_log_warning(const std::string& text) {
  logger().warn("warning: {}", text);
  logger().flush();
}

}  // namespace pipedream
