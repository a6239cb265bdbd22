// --world-command of `run`: a shell command that prints how many ranks can be started now. It runs before every start.
// It may fail, print nonsense or hang; `run` answers signals in all these cases.
// Read next: ops/supervisor/supervisor.h, which asks.
#pragma once

#include <optional>
#include <string>

#include "ops/supervisor/job.h"

namespace trireme::supervisor {

struct WorldAnswer {
  std::optional<int> ranks;  ///< nothing if there is no answer
  std::string problem;       ///< why there is no answer: "ended with exit code 127 (the command was not found)"
  bool leave = false;        ///< there is no answer because a signal asked to leave
  bool save = false;         ///< a signal asked to save during the wait
};

/// Returns the number at the beginning of the command's output. A command that fails gives no answer, unless it prints
/// 0, as `grep -c` does. The command and its process group are killed after `patience` seconds, after a megabyte of
/// output, or when a signal asks to leave. Throws ExitCode::retryable if the system has no resources for a process.
WorldAnswer ask_world(const std::string& command, const SignalQueue& signals, double patience = 60);

}  // namespace trireme::supervisor
