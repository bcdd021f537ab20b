#include "pipedream/comm/launch_environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <vector>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

class Lookup {
 public:
  explicit Lookup(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  [[nodiscard]] std::string text(const std::string& name) const {
    const char* value = lookup_(name.c_str());
    return value == nullptr ? "" : value;
  }
  [[nodiscard]] std::optional<int> number(const std::string& name, int least, int most) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least || number > most)
      throw UsageError(fmt::format("the environment variable {} is '{}', which is no number from {} to {}", name, value, least, most));
    return number;
  }
  [[nodiscard]] std::optional<int> first_number(const std::vector<std::string>& names, int least, int most) const {
    for (const auto& name : names)
      if (const auto found = number(name, least, most)) return found;
    return std::nullopt;
  }

 private:
  const EnvironmentLookup& lookup_;
};

constexpr int kMostRanks = 1 << 20;

/// A port from 20000 to 31999, below those that systems give to connections.
int port_of(const std::string& job) {
  std::uint32_t hash = 2166136261U;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return 20000 + static_cast<int>(hash % 12000U);
}

/// Names under which one launcher keeps the place of a process.
struct Names {
  std::string launcher, rank;
  std::vector<std::string> size, local_rank, local_size;
};

std::optional<LaunchEnvironment> place(const Lookup& lookup, const Names& names) {
  const auto rank = lookup.number(names.rank, 0, kMostRanks);
  const auto size = lookup.first_number(names.size, 1, kMostRanks);
  if (!rank && (!size || names.rank != "RANK")) return std::nullopt;
  if (!rank || !size)
    throw UsageError(
        fmt::format("the environment variable {} is set and {} is not", rank ? names.rank : names.size[0], rank ? names.size[0] : names.rank),
        "a launcher sets both; unset it to run ranks as threads");
  if (*rank >= *size)
    throw UsageError(
        fmt::format("{} is {} and {} is {}: ranks count from 0 and are below the number of ranks", names.rank, *rank, names.size[0], *size));
  LaunchEnvironment environment;
  environment.launcher = names.launcher;
  environment.rank = *rank;
  environment.world_size = *size;
  const auto local_size = lookup.first_number(names.local_size, 1, kMostRanks);
  environment.local_rank = lookup.first_number(names.local_rank, 0, kMostRanks).value_or(local_size ? *rank % *local_size : *rank);
  environment.local_world_size = local_size.value_or(*size);
  return environment;
}

}  // namespace

std::string first_slurm_node(const std::string& nodes) {
  const auto open = nodes.find_first_of("[,");
  if (open == std::string::npos) return nodes;
  std::string first = nodes.substr(0, open);
  if (nodes[open] == ',') return first;
  const auto end = nodes.find_first_of(",-]", open);
  return first + nodes.substr(open + 1, end == std::string::npos ? std::string::npos : end - open - 1);
}

std::optional<LaunchEnvironment> find_launch_environment(const EnvironmentLookup& variables) {
  const Lookup lookup(variables);
  std::string job, host;
  auto found = place(lookup, {"environment variables", "RANK", {"WORLD_SIZE"}, {"LOCAL_RANK"}, {"LOCAL_WORLD_SIZE"}});
  if (found) {
    found->token = lookup.text("TORCHELASTIC_RUN_ID");
    if (found->token == "none") found->token.clear();  // torchrun without --rdzv_id
    found->port_is_taken = lookup.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  }
  if (!found) {
    found =
        place(lookup, {"mpirun", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_RANK"}, {"OMPI_COMM_WORLD_LOCAL_SIZE"}});
    // srun sets PMI_RANK too where it speaks PMI-2; it knows more by its own names.
    if (!found && lookup.text("PMI_RANK") != lookup.text("SLURM_PROCID"))
      found = place(lookup, {"mpirun", "PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALRANKID"}, {"MPI_LOCALNRANKS"}});
    if (found) {
      for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "HYDI_CONTROL_FD"})
        if (job.empty()) job = lookup.text(name);
      if (lookup.text("MASTER_ADDR").empty() && found->local_world_size < found->world_size)
        throw UsageError("mpirun has started ranks on several hosts and does not say where rank 0 is",
                         "give its address: mpirun -x MASTER_ADDR=HOST ... (Open MPI), mpirun -genv MASTER_ADDR HOST ... (MPICH)");
    }
  }
  // The shell of a batch job has SLURM_PROCID=0 as well; only srun makes a step.
  if (!found && (lookup.text("SLURM_JOB_ID").empty() || !lookup.text("SLURM_STEP_ID").empty())) {
    found = place(lookup, {"srun", "SLURM_PROCID", {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, {"SLURM_LOCALID"}, {}});
    if (found) {
      job = lookup.text("SLURM_JOB_ID") + "." + lookup.text("SLURM_STEP_ID");
      const std::string per_node = lookup.text("SLURM_STEP_TASKS_PER_NODE");  // "2(x3),1"
      int tasks = 0;
      const auto [end, error] = std::from_chars(per_node.data(), per_node.data() + per_node.size(), tasks);
      if (error == std::errc() && tasks > 0) found->local_world_size = tasks;
      for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST"})
        if (host.empty()) host = first_slurm_node(lookup.text(name));
    }
  }
  if (!found) return std::nullopt;
  if (found->token.empty()) found->token = job;
  if (!host.empty()) found->master_address = host;
  if (!job.empty()) found->master_port = port_of(job);
  if (const std::string address = lookup.text("MASTER_ADDR"); !address.empty()) found->master_address = address;
  if (const auto port = lookup.number("MASTER_PORT", 1, 65535)) found->master_port = *port;
  return found;
}

}  // namespace pipedream
