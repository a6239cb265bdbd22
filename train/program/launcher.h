// What a launcher (mpirun, srun) tells a process through its environment, before MPI is initialised: enough to print
// help or an error once instead of once per process.
// Read next: train/program/program.h.
#pragma once

#include <sys/types.h>

#include <optional>

namespace trireme {

int launcher_rank();   ///< this process among those the launcher started; 0 without one
int launcher_ranks();  ///< how many the launcher started; 0 without one
/// Cores for this process: those it may use, divided among the launcher's ranks on this machine unless the launcher
/// has given each its own.
int cores();

/// The part of the usable cores that a rank's first thread keeps to, and of how many: what OwnCores takes.
struct CorePart {
  int first, parts;
};
/// For a process that is a rank with so many threads. Where the launcher left all ranks of this machine the same cores,
/// they share them out; with too few of them there are more parts than cores.
CorePart core_part(int threads);

/// True for the first caller among the launcher's processes on this machine, false for all others: that one reports a
/// failure which several of them find. Always true without a launcher (or with one that gives its job no folder).
bool first_to_report();

/// Tells a job that a supervisor (train/supervisor/supervisor.h) starts how often it was started again.
constexpr const char* restarts_variable = "TRIREME_RESTARTS";
/// Nothing for a process that is not there.
std::optional<pid_t> parent_of(pid_t process);

}  // namespace trireme
