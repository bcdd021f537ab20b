#include "cli/run_folder.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "pipedream/core/error.hpp"
#include "pipedream/core/file.hpp"
#include "pipedream/schedule/csv.hpp"

namespace pipedream::cli {

RunFolder::RunFolder(const std::filesystem::path& path) : path_(path), metrics_(nullptr, std::fclose) {
  if (std::filesystem::exists(path_ / "summary.json"))
    throw UsageError(fmt::format("{} holds a finished run", path_.string()), "give another --run directory, or remove this one");
  make_folder(path_);
  make_folder(path_ / "checkpoints");
  const auto file = path_ / "metrics.jsonl";
  metrics_.reset(std::fopen(file.c_str(), "wb"));
  if (!metrics_) throw InputError(file.string(), fmt::format("cannot write: {}", std::strerror(errno)));
}

void RunFolder::write_settings(const std::string& toml) { write_file(path_ / "settings.toml", toml); }
void RunFolder::write_profile(const Profile& profile) { write_file(path_ / "profile.json", profile_to_json(profile)); }
void RunFolder::write_plan(const Plan& plan) { write_file(path_ / "plan.json", plan_to_json(plan)); }
void RunFolder::write_schedule(const Schedule& schedule) { write_file(path_ / "schedule.csv", schedule_to_csv(schedule)); }
void RunFolder::write_trace(const Trace& trace) { write_file(path_ / "trace.json", trace_to_chrome_json(trace)); }

void RunFolder::append_metrics(const std::string& json) {
  const std::string line = json + "\n";
  if (std::fwrite(line.data(), 1, line.size(), metrics_.get()) != line.size() || std::fflush(metrics_.get()) != 0)
    throw InputError((path_ / "metrics.jsonl").string(), fmt::format("cannot write: {}", std::strerror(errno)),
                     "free some space or choose another --run directory");
}

void RunFolder::write_summary(const std::string& json) { write_file(path_ / "summary.json", json); }

}  // namespace pipedream::cli
