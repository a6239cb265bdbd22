// The group of one rank: the suite of suite.h, what it refuses, and how a launcher is found.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/comm/suite.h"
#include "tests/support/errors.h"

using namespace trireme;

TEST_CASE("the group of one passes the suite") {
  const auto group = self_group();
  CHECK(group->size() == 1);
  CHECK(group->rank() == 0);
  CHECK_NOTHROW(testing::check_all(*group));
}

TEST_CASE("a rank that receives from itself what it never sent is told so") {
  const auto group = self_group();
  Tensor y = Tensor::zeros({3});
  CHECK(testing::contains(testing::error_of([&] { group->recv(y, 0, 4).wait(); }, ExitCode::desync), "tag 4"));
}

TEST_CASE("the launcher is told from the environment, without MPI") {
  const auto set = [](const char* variable, const char* value) { setenv(variable, value, 1); };
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"})
    unsetenv(variable);
  CHECK_FALSE(under_mpi_launcher());
  CHECK(mpi_launcher_size() == 1);
  set("SLURM_PROCID", "0");  // a batch script, not a rank
  CHECK_FALSE(under_mpi_launcher());
  set("SLURM_STEP_NUM_TASKS", "6");
  CHECK(mpi_launcher_size() == 6);
  set("OMPI_COMM_WORLD_SIZE", "4");
  CHECK(under_mpi_launcher());
  CHECK(mpi_launcher_size() == 4);
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}) unsetenv(variable);
}

TEST_CASE("arguments that do not fit are refused with the operation's name") {
  const auto group = self_group();
  const Tensor x = Tensor::zeros({4, 3});
  CHECK_THROWS_WITH_AS(group->all_gather(x, Tensor::zeros({5, 4, 3})), doctest::Contains("[all_gather] x [4, 3] and y"),
                       Error);
  CHECK_THROWS_WITH_AS(group->all_reduce(view::transpose(x, 0, 1)), doctest::Contains("not dense"), Error);
  CHECK_THROWS_WITH_AS(group->broadcast(x, 1), doctest::Contains("root 1 is not a rank"), Error);
  CHECK_THROWS_WITH_AS(group->all_to_all(x, x), doctest::Contains("the same memory"), Error);
  CHECK_THROWS_WITH_AS(group->subgroup({3}, "other"), doctest::Contains("world rank 3"), Error);
}
