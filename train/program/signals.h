// Signals that ask a run to save. A signal is noted here, and acted on at the next step boundary, on which the ranks
// agree (train/runs/checkpointing.h).
//
//   SIGTERM, SIGUSR2   save and leave, with exit code 75. There are two because mpirun forwards SIGUSR2 at once and
//                      waits, but after a SIGTERM it kills the ranks within two seconds
//   SIGHUP, SIGPIPE    the same: the terminal was closed, or the reader of the output (tee) has gone; either may arrive
//                      first. Not if ignored at the start: SIGHUP under nohup, SIGPIPE under `run`
//   SIGINT             the same; a second one ends the process at once
//   SIGUSR1            save and go on
//
// Read next: train/runs/checkpointing.h; docs/operations.md says which signal to send where.
#pragma once

#include <chrono>
#include <optional>

namespace trireme {

/// Installs the handlers, until the process ends. If SIGHUP, SIGPIPE or SIGINT (in a shell's background jobs) is
/// ignored, it stays ignored.
void catch_signals();

struct SignalsNoted {
  bool leave = false;                                         ///< once set, stays set
  std::optional<std::chrono::steady_clock::time_point> save;  ///< when a save was requested, since the last call
};
/// The requests of signals to this process. If several threads ask, only one of them gets a given save request.
SignalsNoted signals_noted();

/// True if a supervisor (train/supervisor/supervisor.h) started this process or its launcher, at the time of
/// catch_signals(), and has ended since. The job then saves and leaves.
bool supervisor_gone();

}  // namespace trireme
