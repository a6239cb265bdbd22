// --world-command of `run`: a shell command that prints how many ranks can be started now. It is asked before every
// start, and may fail, print nonsense or never end: none of that keeps `run` from answering signals.
// Read next: train/supervisor/supervisor.h, which asks.
#pragma once

#include <optional>
#include <string>

#include "train/supervisor/job.h"

namespace trireme::supervisor {

struct WorldAnswer {
  std::optional<int> ranks;  ///< nothing when there is no answer
  std::string problem;       ///< why there is none: "ended with exit code 127 (the command was not found)"
  bool leave = false;        ///< there is none because a signal asked to leave meanwhile
  bool save = false;         ///< a signal asked to save meanwhile
};

/// The number that the command's output begins with. A command that fails has no answer, unless it prints 0, as `grep
/// -c` does. Whatever still runs after `patience` seconds, or when a signal asks to leave, is killed. Throws
/// ExitCode::retryable when the system has no room for a process.
WorldAnswer ask_world(const std::string& command, const SignalQueue& signals, double patience = 60);

}  // namespace trireme::supervisor
