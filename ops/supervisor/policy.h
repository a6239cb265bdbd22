// The supervisor's decisions as pure functions: how did the job end, is it restarted, when, and with how many ranks.
// Uses no process, clock or file.
// Read next: ops/supervisor/supervisor.h, which asks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::supervisor {

/// How a process ended: by a signal, or with an exit code.
struct Ending {
  int code = 0;
  int signal = 0;  ///< 0: none

  /// From the status of waitpid(). Launchers and shells exit with 128 + N if signal N ended their process; such a code
  /// is read as the signal.
  static Ending of_wait_status(int status);
  static Ending of_exit_code(int code);
  int as_exit_code() const { return signal != 0 ? 128 + signal : code; }
  bool operator==(const Ending&) const = default;
};
/// "exit code 74 (the file system refused)", "signal 9 (Killed)". `cause` replaces the general meaning of the code.
std::string to_string(const Ending& ending, const std::string& cause = {});

enum class EndKind : std::uint8_t {
  done,             ///< all steps are made
  retryable,        ///< a restart may help: a signal, or ExitCode::retryable
  launcher_failed,  ///< the launcher itself failed: no slots for all ranks, or a lost node
  final,            ///< a restart would end the same way, or a user interrupted it
};
/// `launched`: the command is a launcher's (mpirun, srun). Launchers report their own failures with exit code 1, which
/// train_gpt never uses.
EndKind classify(const Ending& ending, bool launched);

struct Limits {
  std::int64_t restarts = 3;  ///< in a row, without progress
  double pause = 1;           ///< seconds before the second restart in a row; each next one waits twice as long,
  double longest_pause = 60;  ///< up to this
};
/// Seconds to wait after `attempts` restarts without progress. The first restart does not wait.
double pause_after(std::int64_t attempts, const Limits& limits);

/// Limits the number and the rate of restarts. Progress means a newer checkpoint, because only saved work is kept.
class Budget {
 public:
  /// `newest`: the step of the newest checkpoint; -1: none.
  Budget(const Limits& limits, std::int64_t newest) : limits_(limits), newest_(newest) {}

  /// Call when the job has ended and should be restarted. Returns the seconds to wait first, or nothing to give up.
  std::optional<double> restart(std::int64_t newest);
  std::int64_t without_progress() const { return without_progress_; }  ///< restarts in a row

 private:
  Limits limits_;
  std::int64_t newest_, without_progress_ = 0;
};

/// The number of ranks to start if `available` of `full` ranks can be started: the largest number for which the new dp
/// divides the old dp and the other axes stay the same, so that the global batch still divides. Returns 0 if that is
/// below `least`. `model_ranks`: the ranks of one model replica, a divisor of `full`.
int ranks_to_start(int full, int model_ranks, int least, int available);

}  // namespace trireme::supervisor
