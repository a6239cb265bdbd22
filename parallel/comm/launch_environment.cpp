#include "parallel/comm/launch_environment.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "parallel/comm/process_group.h"

namespace trireme {

const char* process_environment(const char* variable) { return std::getenv(variable); }

std::optional<int> number_in(const Environment& environment, std::initializer_list<const char*> variables, int least) {
  constexpr int most = 1 << 20;
  for (const char* variable : variables) {
    const char* value = environment(variable);
    const std::string_view text = value == nullptr ? std::string_view() : std::string_view(value);
    if (text.empty()) continue;
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
      fail(ExitCode::usage, "launcher",
           "the environment variable {} is '{}'; expected a whole number from {} to {}, as a launcher sets it; "
           "unset it, or start the ranks with mpirun or srun",
           variable, text.substr(0, 80), least, most);
    return number;
  }
  return std::nullopt;
}

// Open MPI's mpirun and prterun; launchers that speak PMI (Hydra, srun with PMI-2); srun. Slurm sets the variables of
// the whole allocation (SLURM_NTASKS) also in a batch script, which is not a rank; it sets those of a step only for
// ranks.
int launched_ranks(const Environment& environment) {
  if (const auto ranks = number_in(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1)) return *ranks;
  if (!number_in(environment, {"SLURM_PROCID"}, 0)) return 0;
  return number_in(environment, {"SLURM_STEP_NUM_TASKS"}, 1).value_or(0);
}

int launched_rank(const Environment& environment) {
  const int ranks = launched_ranks(environment);
  if (ranks == 0) return 0;
  const int rank =
      number_in(environment, {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}, 0).value_or(0);
  if (rank >= ranks)
    fail(ExitCode::usage, "launcher",
         "the environment says that this is rank {} of {}; expected a smaller rank; start the ranks with one launcher",
         rank, ranks);
  return rank;
}

std::optional<int> launched_local_ranks(const Environment& environment) {
  return number_in(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"}, 1);
}

std::optional<int> launched_local_rank(const Environment& environment) {
  return number_in(environment, {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"}, 0);
}

// From the environment alone: asking MPI whether a launcher started this process would initialise it, which a program
// whose ranks are threads must not do.
bool under_mpi_launcher() { return launched_ranks(process_environment) > 0; }

int mpi_launcher_size() {
  const int ranks = launched_ranks(process_environment);
  return ranks > 0 ? ranks : 1;
}

}  // namespace trireme
