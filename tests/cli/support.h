// Running the programs as a user does, and looking at what they print and how they end.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/text.h"

namespace trireme::testing {

struct Result {
  int code = -1;       ///< exit code; 128 + signal when a signal ended it
  std::string output;  ///< standard output and standard error together
};

/// Runs a program of the build with these arguments, in a shell, for at most two minutes.
Result run(const std::string& program, const std::string& arguments);
/// As run(), with these environment variables, "A=1 B=2", set.
Result run_with(const std::string& variables, const std::string& program, const std::string& arguments);
/// As run(), killed (SIGKILL) after so many seconds unless it ends by itself.
Result run_until_killed(double seconds, const std::string& program, const std::string& arguments);
/// Runs these lines of bash, as run() does.
Result shell(const std::string& lines);
/// As run(), as `ranks` processes under the MPI launcher.
Result run_mpi(int ranks, const std::string& program, const std::string& arguments);
/// As run_mpi(), each rank with a setting of its own, as env takes it: "-C FOLDER A=1", or "".
Result run_mpi_with(const std::vector<std::string>& settings, const std::string& program, const std::string& arguments);

/// That a program ended with this code and one fatal message, which has all of `parts`, before its first step.
void check_refused(const Result& result, int code, const std::vector<std::string>& parts);

/// A folder of its own for a test case, removed at the end, with text.txt in it: 6000 characters, 40 of them distinct.
struct Workplace {
  Workplace();

  TempFolder place;
  std::filesystem::path folder = place.path();
  std::string path(const std::string& name) const { return (folder / name).string(); }
  /// Flags for a small model on that text: one that any mesh of up to 8 ranks can train in a moment.
  std::string small_run() const;
};

/// metrics.jsonl, line by line, with what differs from run to run left out: times, rates and memory.
std::vector<std::string> results(const std::string& path);

/// Values of `key` in a metrics.jsonl, line by line.
std::vector<double> metric(const std::string& path, const std::string& key);

}  // namespace trireme::testing
