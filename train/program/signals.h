// Signals that ask a run to save. A signal is noted here, and acted on at the next step boundary, on which the ranks
// agree (train/runs/checkpointing.h).
//
//   SIGTERM, SIGUSR2   save and leave, with exit code 75. There are two because mpirun forwards SIGUSR2 at once and
//                      waits, but after a SIGTERM it kills the ranks within two seconds
//   SIGXCPU            the same: the limit of processor time (ulimit -S -t) is reached
//   SIGHUP, SIGPIPE    the same: the terminal was closed, or the reader of the output (tee) has gone; either may arrive
//                      first. Not if ignored at the start: SIGHUP under nohup, SIGPIPE under `run`
//   SIGINT             the same; a second one ends the process at once
//   SIGUSR1            save and go on
//
// Before training begins there is nothing to save: a signal that asks to leave then ends the process at once, with a
// message and exit code 75.
//
// Read next: train/runs/checkpointing.h; docs/operations.md says which signal to send where.
#pragma once

#include <chrono>
#include <optional>

namespace trireme {

/// Installs the handlers of all but SIGPIPE, until the process ends. If SIGHUP or SIGINT (in a shell's background jobs)
/// is ignored, it stays ignored. Call it first thing.
void catch_signals();
/// The same for SIGPIPE. Call it when a run starts: a reader that has seen enough of --help may go.
void catch_broken_pipes();
/// From now on a signal that asks to leave is noted.
void note_training_begins();

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
