// Runs a program to its end, with a time limit. Read next: check/explore/program_runner.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::explore {

struct ProcessResult {
  static constexpr int timed_out = 124;

  int code = 0;        ///< exit code; 128 + signal if a signal ended it; or timed_out
  std::string output;  ///< standard output and standard error, in order of arrival
};

/// Runs `command` (the program's path, and its arguments) with `environment` ("NAME=value") added, and waits. After
/// `seconds`, kills the program and everything in its process group. Callable from any thread.
ProcessResult run_process(const std::vector<std::string>& command, const std::vector<std::string>& environment,
                          double seconds);

}  // namespace trireme::explore
