// Signals that ask a run to save: what arrives at this process is noted here, and done at the next step boundary, on
// which the ranks agree (train/runs/checkpointing.h).
//
//   SIGTERM, SIGUSR2   save and leave, with exit code 75. Two, as mpirun passes SIGUSR2 on at once and leaves the ranks
//                      their time, and after a SIGTERM kills them within two seconds
//   SIGHUP, SIGPIPE    the same: the terminal was closed, or what read the output (tee) has gone, of which either may be
//                      seen first. Not where they are ignored from the start: SIGHUP under nohup, SIGPIPE under `run`
//   SIGINT             the same; a second one ends the process at once
//   SIGUSR1            save and go on
//
// Read next: train/runs/checkpointing.h; docs/operations.md says which signal to send where.
#pragma once

#include <chrono>
#include <optional>

namespace trireme {

/// From here on, until the process ends, these signals are noted. A SIGHUP, SIGPIPE or SIGINT (in a shell's background
/// jobs) that is ignored stays so.
void catch_signals();

struct SignalsNoted {
  bool leave = false;                                         ///< stays so
  std::optional<std::chrono::steady_clock::time_point> save;  ///< when that came, since this was last asked
};
/// What signals have asked of this process. Of several threads that ask, one is told of a save.
SignalsNoted signals_noted();

/// Whether a supervisor (train/supervisor/supervisor.h) was there, above this process or the launcher of this machine's
/// ranks, when catch_signals() was called, and is no more: its end asks its job to leave.
bool supervisor_gone();

}  // namespace trireme
