// Supervisor: starts a job, and restarts it if it ended for a reason that may not occur again.
//
//   start -> the job ends -> wait until all its processes are gone -> remove its shared memory -> classify() its end
//     done, or a failure that would occur again -> return its exit code
//     a signal, exit code 75, or a failed launcher -> pause, and restart with --resume auto
//
// Signals to the supervisor are sent to the job as SIGUSR2 (save and leave) or SIGUSR1 (save and go on). Launchers
// forward these at once. After a SIGTERM, they would kill their ranks two seconds later. A job that is still starting
// may miss signals: ops/supervisor/requests.h.
// Read next: ops/supervisor/policy.h (the decisions), ops/supervisor/job.h (the processes),
// ops/supervisor/run_checkpoints.h (where a job resumes), ops/supervisor/incident_log.h, docs/operations.md.
#pragma once

#include "ops/supervisor/command.h"
#include "ops/supervisor/incident_log.h"
#include "ops/supervisor/job.h"
#include "ops/supervisor/policy.h"
#include "ops/supervisor/requests.h"
#include "ops/supervisor/run_checkpoints.h"
#include "ops/supervisor/world.h"

namespace trireme::supervisor {

constexpr int gave_up = 69;  ///< exit code: too many restarts without a newer checkpoint

struct Options {
  Limits limits;
  double grace = 1;                         ///< seconds for the job's other processes to end after its command has
                                            ///< ended
  std::optional<std::int64_t> least_ranks;  ///< fewest ranks to restart with; not set: always all
  std::string world_command;                ///< prints how many ranks can be started; empty: try whether the launcher
                                            ///< can start them
};

class Supervisor {
 public:
  /// Throws ExitCode::usage for a command without --out, and for a command that does not fit the options.
  Supervisor(const Options& options, const Command& command);

  /// Returns when the job is done, is given up, fails for good or is told to leave. The exit code is the job's, or
  /// gave_up. Throws ExitCode::usage if --world-command gives no number at the first start.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  int run_jobs();
  /// The command for starts before any job has begun; the folder may then hold an earlier run. `note`: a message for
  /// the user about it.
  Command first_command_to_start(std::string& note) const;
  std::optional<Command> command_to_start();
  /// How many ranks to try after the launcher could not start `ranks_`. 0: fewer are not allowed, or --world-command
  /// gives the number.
  int fewer_ranks() const;
  /// Nothing if --world-command gave no number.
  std::optional<int> available_ranks();
  Ending run_job(const Command& command);
  /// The exit code to return after the job ended with `ending`; nothing if it is to be restarted.
  std::optional<int> code_after(const Ending& ending);
  /// Handles a signal from a user. A request to kill the job is executed at once.
  void take(int signal, const Job& job);
  void take_save(bool now);
  /// True if every process of the job has signal handlers. The sign of it: the job has written its configuration.
  bool listens() const;
  /// Notices the first new step of this job, which closes an open incident, and each checkpoint.
  void watch_training();
  void watch_saves();
  void note_incident(const Ending& ending, EndKind kind);
  /// Returns false if a signal asked to leave.
  bool pause(double seconds);
  static int left_without_job();

  Options options_;
  Command command_;
  std::filesystem::path out_;
  RunCheckpoints checkpoints_;
  IncidentLog incidents_;
  std::optional<Elastic> elastic_;
  int ranks_ = 0;  // of the last start, if elastic_
  SignalQueue signals_;
  Budget budget_;
  std::int64_t restarts_ = 0;
  std::int64_t waits_ = 0;           // pauses in a row because too few ranks were available
  bool world_asked_ = false;         // --world-command has been run
  std::int64_t world_failures_ = 0;  // failures of --world-command in a row
  Requests requests_;
  bool killed_ = false;           // a user asked to kill the job
  bool launcher_failed_ = false;  // at the last start

  // About the current job, or the last one.
  Moment started_{};
  // Modification times: of config.json and metrics.jsonl before the job, and of the folder of checkpoints when it was
  // looked at last.
  std::optional<std::filesystem::file_time_type> configured_, logged_, saves_;
  std::int64_t resumed_step_ = -1;  // the step it resumed from
  std::int64_t told_save_at_ = -1;  // the newest checkpoint when the job was asked to save
  bool save_lost_ = false;          // it ended without the requested save
  std::optional<Moment> training_since_;
  std::int64_t saved_step_ = -1;  // the newest checkpoint,
  Moment saved_at_{};             // and when it appeared
  FailureMessage failure_message_;
};

}  // namespace trireme::supervisor
