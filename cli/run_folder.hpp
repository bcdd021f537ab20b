#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "pipedream/graph/profile.hpp"
#include "pipedream/plan/plan.hpp"
#include "pipedream/runtime/trainer.hpp"
#include "pipedream/schedule/schedule.hpp"

namespace pipedream::cli {

/// A run directory: settings.toml profile.json plan.json schedule.csv metrics.jsonl summary.json trace.json checkpoints/.
/// Files are written as soon as their content is known; metrics.jsonl grows by a line per optimizer step. @throws InputError if a file cannot be
/// written
class RunFolder {
 public:
  explicit RunFolder(const std::filesystem::path& path);

  void write_settings(const std::string& toml);
  void write_profile(const Profile& profile);
  void write_plan(const Plan& plan);
  void write_schedule(const Schedule& schedule);
  /// One line of metrics.jsonl (a JSON object without the line end).
  void append_metrics(const std::string& json);
  void write_trace(const Trace& trace);
  void write_summary(const std::string& json);
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> metrics_;
};

}  // namespace pipedream::cli
