// What a launcher (mpirun, srun) tells a process in its environment, before MPI is initialised: enough to print help or
// an error once instead of once per process.
// Read next: train/program/program.h.
#pragma once

#include <sys/types.h>

#include <optional>

namespace trireme {

int launcher_rank();   ///< rank of this process in the launcher's job; 0 without a launcher
int launcher_ranks();  ///< number of processes that the launcher started; 0 without one
/// The number of cores for this process: those it may use, within its quota of processor time. If the launcher did not
/// bind its ranks to cores, they are divided among the launcher's ranks on this machine.
int cores();

/// A position in the usable cores, for OwnCores: the part `first` of `parts` equal parts belongs to a rank's first
/// thread.
struct CorePart {
  int first, parts;
};
/// The part for a process that is a rank with `threads` threads. If the launcher gave all ranks of this machine the
/// same cores, the ranks divide them. With too few cores, there are more parts than cores.
CorePart core_part(int threads);

/// True for the first caller among the launcher's processes on this machine, false for all others. The first one
/// reports a failure that several processes find, and then calls note_reported(). Always true without a launcher (or
/// with one that has no job folder).
bool first_to_report();
/// Call it when the first one has written its message: see await_report().
void note_reported();
/// Of the other processes: returns when the first one has reported, or after ten seconds, as it may have died.
void await_report();

/// The variable in which a supervisor (ops/supervisor/supervisor.h) tells its job how often it was restarted.
constexpr const char* restarts_variable = "TRIREME_RESTARTS";
/// The parent of a process; nothing if the process does not exist.
std::optional<pid_t> parent_of(pid_t process);

}  // namespace trireme
