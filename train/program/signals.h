// Signals that ask a run to save. A signal is noted here, and acted on at the next step boundary, on which the ranks
// agree (train/runs/checkpointing.h).
//
//   SIGTERM, SIGUSR2   save and leave, with exit code 75. There are two because mpirun forwards SIGUSR2 at once and
//                      waits, but after a SIGTERM it kills the ranks within two seconds
//   SIGXCPU            the same: the limit of processor time (ulimit -S -t) is reached
//   SIGHUP, SIGPIPE    the same: the terminal was closed, or the reader of the output (tee) has gone; either may arrive
//                      first. Not if ignored at the start: SIGHUP under nohup, SIGPIPE under `run`
//   SIGINT             the same; a second one ends the process at once, and says which step was saved last
//   SIGUSR1            save and go on
//
// SIGTSTP (Ctrl-Z) stops the process as usual, after the live line was erased.
//
// Before training begins there is nothing to save: a signal that asks to leave then ends the process at once, with a
// message and exit code 75.
//
// `generate` has no steps: it uses catch_signals_of_texts() instead.
//
// Read next: train/runs/checkpointing.h; docs/operations.md says which signal to send where.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace trireme {

/// Installs the handlers of all but SIGPIPE, until the process ends. If SIGHUP or SIGINT (in a shell's background jobs)
/// is ignored, it stays ignored. Call it first thing.
void catch_signals();
/// The same for SIGPIPE. Call it when a run starts: a reader that has seen enough of --help may go.
void catch_broken_pipes();
/// From now on a signal that asks to leave is noted.
void note_training_begins();

/// For messages of the handlers: whether the terminal shows a live line, which a message replaces, and the step that
/// was saved last.
void note_live_line(bool shown);
/// A checkpoint of `step` is complete; shown if a signal ends the run.
void note_saved(std::int64_t step);

/// What signals have asked this process for.
struct SignalsNoted {
  bool leave = false;                                         ///< once set, stays set
  bool interrupted = false;                                   ///< by SIGINT; once set, stays set
  std::optional<std::chrono::steady_clock::time_point> save;  ///< when a save was requested, since the last call
};
/// The requests of signals to this process. If several threads ask, only one of them gets a given save request.
SignalsNoted signals_noted();

/// Whether a signal has asked to leave. Unlike signals_noted(), it takes no request to save: ask as often as you like.
bool leave_asked();

/// For a program that makes texts, in place of catch_signals(): from now on the first SIGINT, SIGTERM, SIGHUP, SIGUSR2
/// or SIGXCPU is noted, for leave_asked(). The second of the same kind ends the process as if it were not caught.
/// Signals that are ignored stay so. Call it when there is something to lose: until then a signal ends the process.
void catch_signals_of_texts();
/// Whether only SIGINT has asked to leave: in a conversation it ends the reply.
bool only_interrupted();
/// Forgets SIGINT, and catches the next. leave_asked() stays true if another signal has asked to leave.
void forget_interrupt();

/// True if a supervisor (ops/supervisor/supervisor.h) started this process or its launcher, at the time of
/// catch_signals(), and has ended since. The job then saves and leaves.
bool supervisor_gone();

}  // namespace trireme
