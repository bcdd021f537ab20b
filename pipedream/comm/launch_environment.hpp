#pragma once

#include <functional>
#include <optional>
#include <string>

namespace pipedream {

/// The place of this process in a run, as a launcher says it by environment variables.
struct LaunchEnvironment {
  std::string launcher;  ///< "environment variables", "mpirun", "srun"
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;  ///< among the ranks of this host
  std::string master_address = "127.0.0.1";  ///< of rank 0
  int master_port = 29500;
  std::string token;           ///< tells runs apart; may be empty
  bool port_is_taken = false;  ///< torchrun's agent listens at the port itself: rank 0 takes the next free one above
  bool operator==(const LaunchEnvironment&) const = default;
};

/// Looks up one environment variable; null where it is not set. std::getenv, or a table in tests.
using EnvironmentLookup = std::function<const char*(const char* name)>;

/// Finds the place of this process. In this order:
///   RANK, WORLD_SIZE (LOCAL_RANK, LOCAL_WORLD_SIZE): torchrun, Kubernetes jobs, our own launcher, by hand;
///   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE: Open MPI;
///   PMI_RANK, PMI_SIZE (MPI_LOCALRANKID, MPI_LOCALNRANKS): MPICH, Intel MPI;
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS or SLURM_NTASKS, SLURM_LOCALID: srun, but not the shell of a batch job.
/// MASTER_ADDR and MASTER_PORT say where rank 0 listens; without them: this host, the first node of the Slurm step, and a port that follows from
/// the job, so that two jobs on a host do not meet.
/// Nothing if no launcher has set anything. @throws UsageError naming the variable that is wrong or missing
[[nodiscard]] std::optional<LaunchEnvironment> find_launch_environment(const EnvironmentLookup& lookup);

/// "gpu[03-06,9],x" to "gpu03".
[[nodiscard]] std::string first_slurm_node(const std::string& nodes);

}  // namespace pipedream
