#include "pipedream/comm/launch_environment.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "pipedream/core/error.hpp"

namespace pipedream {
namespace {

std::optional<LaunchEnvironment> find_in(const std::map<std::string, std::string>& variables) {
  return find_launch_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(LaunchEnvironment, NothingIsNothing) {
  EXPECT_EQ(find_in({}), std::nullopt);
  EXPECT_EQ(find_in({{"MASTER_ADDR", "host"}, {"MASTER_PORT", "1"}}), std::nullopt);
}

TEST(LaunchEnvironment, Torchrun) {
  const auto found = find_in({{"RANK", "5"},
                              {"WORLD_SIZE", "8"},
                              {"LOCAL_RANK", "1"},
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"MASTER_ADDR", "10.0.0.1"},
                              {"MASTER_PORT", "4242"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(*found, (LaunchEnvironment{"environment variables", 5, 8, 1, 4, "10.0.0.1", 4242, "", true}));
}

TEST(LaunchEnvironment, KubernetesJobs) {
  const auto found = find_in({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "job-master-0"}, {"MASTER_PORT", "23456"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->master_address, "job-master-0");
  EXPECT_EQ(found->master_port, 23456);
  EXPECT_FALSE(found->port_is_taken);
}

TEST(LaunchEnvironment, OpenMpiOnOneHostNeedsNoAddress) {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "2"},
                                               {"OMPI_COMM_WORLD_SIZE", "3"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                                               {"PMIX_NAMESPACE", "12345"}};
  const auto found = find_in(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "mpirun");
  EXPECT_EQ(found->rank, 2);
  EXPECT_EQ(found->master_address, "127.0.0.1");
  EXPECT_EQ(found->token, "12345");
  variables["PMIX_NAMESPACE"] = "12346";  // another run on the same host takes another port
  EXPECT_NE(find_in(variables)->master_port, found->master_port);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";  // several hosts: where is rank 0?
  EXPECT_THROW((void)find_in(variables), UsageError);
  variables["MASTER_ADDR"] = "host";
  EXPECT_EQ(find_in(variables)->master_address, "host");
}

TEST(LaunchEnvironment, Mpich) {
  const auto found = find_in({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "mpirun");
  EXPECT_EQ(found->world_size, 2);
}

TEST(LaunchEnvironment, SrunTakesTheFirstNodeAndAPortOfTheJob) {
  std::map<std::string, std::string> variables{{"SLURM_JOB_ID", "77"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_PROCID", "3"},
                                               {"SLURM_NTASKS", "4"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_STEP_NODELIST", "gpu[03-04]"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
  const auto found = find_in(variables);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->launcher, "srun");
  EXPECT_EQ(found->rank, 3);
  EXPECT_EQ(found->local_rank, 1);
  EXPECT_EQ(found->local_world_size, 2);
  EXPECT_EQ(found->master_address, "gpu03");
  EXPECT_EQ(found->token, "77.0");
  variables["PMI_RANK"] = "3";  // as with srun --mpi=pmi2
  variables["PMI_SIZE"] = "4";
  EXPECT_EQ(find_in(variables)->launcher, "srun");
  variables.erase("PMI_RANK");
  variables.erase("SLURM_STEP_ID");  // the shell of a batch job
  EXPECT_EQ(find_in(variables), std::nullopt);
}

TEST(LaunchEnvironment, NodeLists) {
  EXPECT_EQ(first_slurm_node("node1"), "node1");
  EXPECT_EQ(first_slurm_node("a,b[1-2]"), "a");
  EXPECT_EQ(first_slurm_node("gpu[03-06,9],x"), "gpu03");
  EXPECT_EQ(first_slurm_node("gpu[7,9]"), "gpu7");
}

TEST(LaunchEnvironment, WhatIsWrongIsNamed) {
  const auto error_of = [](const std::map<std::string, std::string>& variables) -> std::string {
    try {
      (void)find_in(variables);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({{"RANK", "0"}}), testing::HasSubstr("RANK is set and WORLD_SIZE is not"));
  EXPECT_THAT(error_of({{"WORLD_SIZE", "2"}}), testing::HasSubstr("WORLD_SIZE is set and RANK is not"));
  EXPECT_THAT(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), testing::HasSubstr("below the number of ranks"));
  EXPECT_THAT(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), testing::HasSubstr("RANK is '-1'"));
  EXPECT_THAT(error_of({{"RANK", "1x"}, {"WORLD_SIZE", "2"}}), testing::HasSubstr("RANK is '1x'"));
  EXPECT_THAT(error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}), testing::HasSubstr("MASTER_PORT is '70000'"));
}

}  // namespace
}  // namespace pipedream
