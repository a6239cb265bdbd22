// What a supervisor decides, as functions of what it has seen: how did the job end, is it started again, when, and with
// how many ranks. No process, clock or file is touched here.
// Read next: train/supervisor/supervisor.h, which asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::supervisor {

/// How a process ended: by a signal, or with an exit code.
struct Ending {
  int code = 0;
  int signal = 0;  ///< 0: none

  /// Of what waitpid() gives. Launchers and shells say 128 + N for a process of theirs that signal N ended: that is
  /// read as the signal.
  static Ending of_wait_status(int status);
  static Ending of_exit_code(int code);
  int as_exit_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const Ending&) const = default;
};
/// "exit code 74 (the file system refused)", "signal 9 (Killed)". `cause`: why, where more is known than the code.
std::string to_string(const Ending& ending, const std::string& cause = {});

enum class Verdict : std::uint8_t {
  done,      ///< it has made all its steps
  again,     ///< what ended it need not happen again: a signal, or ExitCode::retryable
  launcher,  ///< the launcher itself failed: no place for all ranks, or a machine is gone
  final,     ///< it would end the same way again, or a person interrupted it
};
/// `launched`: the command is a launcher's (mpirun, srun), whose own failures are exit code 1, which train_gpt has not.
Verdict judge(const Ending& ending, bool launched);

struct Limits {
  std::int64_t restarts = 3;  ///< in a row, without progress
  double pause = 1;           ///< seconds before the second of them; each next one waits twice as long,
  double longest_pause = 60;  ///< up to this
};
/// Seconds to wait after so many attempts in vain; the first is followed up at once.
double pause_after(std::int64_t attempts, const Limits& limits);

/// How often and how fast a job is started again. Progress is a newer checkpoint: only what is saved is kept.
class Budget {
 public:
  /// `newest`: the step of the newest checkpoint; -1: there is none.
  Budget(const Limits& limits, std::int64_t newest) : limits_(limits), newest_(newest) {}

  /// The job has ended and is to be started again: the seconds to wait first, or nothing when it is given up.
  std::optional<double> restart(std::int64_t newest);
  std::int64_t without_progress() const { return without_progress_; }  ///< restarts in a row

 private:
  Limits limits_;
  std::int64_t newest_, without_progress_ = 0;
};

/// How many ranks a job of `full` ranks is started with when `available` can be: all, or so many that dp is a divisor
/// of what it was and the other axes stay, as the global batch then still divides. 0 when that is below `least`.
/// `model_ranks`: ranks that hold one copy of the model, a divisor of `full`.
int ranks_to_start(int full, int model_ranks, int least, int available);

}  // namespace trireme::supervisor
