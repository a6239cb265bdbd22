// Runs the programs as a user does, and checks what they print and how they end.
#pragma once

#include <csignal>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/text.h"

namespace trireme::testing {

struct Result {
  int code = -1;       ///< exit code; 128 + signal when a signal ended it
  std::string output;  ///< standard output and standard error together
};

// The tests do not depend on how fast a program is: they wait for what it does, not for a time, and a run that they end
// would go on for days. Time limits only end what hangs.

/// Runs a program of the build with these arguments, in a shell, for at most half an hour.
Result run(const std::string& program, const std::string& arguments);
/// As run(), with these environment variables: "A=1 B=2".
Result run_with(const std::string& variables, const std::string& program, const std::string& arguments);
/// Runs these lines of bash as run() does. They may not contain single quotes.
Result shell(const std::string& lines);
/// Lines for shell() that start `command` as the process $p, with all its output in `log`, which is empty before.
std::string started(const std::string& command, const std::string& log);
/// Lines for shell() that wait until the command `condition` succeeds. If the process $p has ended and it still does
/// not, the shell ends with code 99.
std::string until(const std::string& condition);
/// Conditions for until(): a file has a line with this pattern of grep; the process $p catches this signal.
std::string has_line(const std::string& pattern, const std::string& file);
std::string catches(int signal);
/// As run(), on a terminal of this width, in UTF-8. The output is what the terminal got, escape sequences included.
Result run_on_terminal(int columns, const std::string& variables, const std::string& program,
                       const std::string& arguments);
/// As run(), as `ranks` processes under the MPI launcher.
Result run_mpi(int ranks, const std::string& program, const std::string& arguments);
/// As run_mpi(), with one rank per setting. A setting holds arguments of env: "-C FOLDER A=1", or "".
Result run_mpi_with(const std::vector<std::string>& settings, const std::string& program, const std::string& arguments);
/// A command that starts two processes of `program` under the launcher. They write to `out` and `errors` themselves:
/// when a rank has ended with a code, mpirun may drop what it has not read yet from the others.
std::string two_ranks(const std::string& program, const std::string& arguments, const std::string& out,
                      const std::string& errors);
/// The result of a job of processes that fails, which `start` starts, with its message. The process that reports has a
/// fifth of a second to print before the others end the job; if that was not enough, the job is started again.
Result with_message(const std::function<Result()>& start);

/// Checks that a program ended before its first step, with this code and one fatal message that contains all of
/// `parts`.
void check_refused(const Result& result, int code, const std::vector<std::string>& parts);

/// As check_refused(), of with_message(). A rank that notices first that another ends the job may end with 75 earlier.
void check_ranks_refused(const std::function<Result()>& start, int code, const std::vector<std::string>& parts);

/// Flags of train_gpt. For a run that ends when it is told to, or killed; and for ranks that wait for each other for
/// hours.
inline const std::string endless = "--steps 1000000000 ";
inline const std::string patient = "--timeout 10000 ";

/// While it lives, hangups are not ignored: under nohup, this program and all that it starts would ignore them.
struct DefaultHangups {
  DefaultHangups() : before(::signal(SIGHUP, SIG_DFL)) {}
  ~DefaultHangups() { ::signal(SIGHUP, before); }
  DefaultHangups(const DefaultHangups&) = delete;
  DefaultHangups& operator=(const DefaultHangups&) = delete;
  sighandler_t before;
};

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
