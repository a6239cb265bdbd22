// Running a program to its end, with a limit of time. Read next: train/explore/lab.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::explore {

struct Ended {
  static constexpr int timed_out = 124;

  int code = 0;        ///< exit code; 128 + signal when a signal ended it; timed_out
  std::string output;  ///< standard output and standard error, in the order of their arrival
};

/// Runs `command` (the program's path, and its arguments) with `environment` ("NAME=value") added, and waits. After
/// `seconds` the program and all that it has started are killed. Any thread.
Ended run_process(const std::vector<std::string>& command, const std::vector<std::string>& environment, double seconds);

}  // namespace trireme::explore
