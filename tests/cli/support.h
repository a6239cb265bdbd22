// Runs the programs as a user does, and checks what they print and how they end.
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
/// As run(), with these environment variables: "A=1 B=2".
Result run_with(const std::string& variables, const std::string& program, const std::string& arguments);
/// As run(), but killed with SIGKILL after this many seconds unless it ends earlier.
Result run_until_killed(double seconds, const std::string& program, const std::string& arguments);
/// Runs these lines of bash as run() does.
Result shell(const std::string& lines);
/// As run(), on a terminal of this width, in UTF-8. The output is what the terminal got, escape sequences included.
Result run_on_terminal(int columns, const std::string& variables, const std::string& program,
                       const std::string& arguments);
/// As run(), as `ranks` processes under the MPI launcher.
Result run_mpi(int ranks, const std::string& program, const std::string& arguments);
/// As run_mpi(), with one rank per setting. A setting holds arguments of env: "-C FOLDER A=1", or "".
Result run_mpi_with(const std::vector<std::string>& settings, const std::string& program, const std::string& arguments);

/// Checks that a program ended before its first step, with this code and one fatal message that contains all of
/// `parts`.
void check_refused(const Result& result, int code, const std::vector<std::string>& parts);

/// A temporary folder for a test case, removed at the end. It contains text.txt: 6000 characters, 40 of them distinct.
struct Workplace {
  Workplace();

  TempFolder place;
  std::filesystem::path folder = place.path();
  std::string path(const std::string& name) const { return (folder / name).string(); }
  /// Flags for a small model on that text, which trains in a moment: 2 layers, 2 heads, global batch 8, micro-batch 2.
  /// Nothing is kept unless another --out follows.
  std::string small_run() const;
};

/// The lines of a metrics.jsonl without what differs from run to run: times, rates and memory.
std::vector<std::string> results(const std::string& path);

/// Values of `key` in a metrics.jsonl, line by line.
std::vector<double> metric(const std::string& path, const std::string& key);

}  // namespace trireme::testing
