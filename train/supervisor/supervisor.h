// Supervisor: starts a job, and starts it again when what ended it need not happen again.
//
//   start -> it ends -> every process of it is gone -> what it left in memory is removed -> judge() its end
//     done, or it would end so again -> that is the end, with its exit code
//     a signal, exit code 75, a launcher that failed -> pause, and start again with --resume auto
//
// Signals to the supervisor go on to the job as SIGUSR2 (save and leave) or SIGUSR1 (save and go on), which launchers
// pass on at once, while a SIGTERM has them kill their ranks two seconds later. A job that still starts may not hear
// them: train/supervisor/orders.h.
// Read next: train/supervisor/policy.h (the decisions), train/supervisor/job.h (the processes), docs/operations.md.
#pragma once

#include "train/supervisor/command.h"
#include "train/supervisor/incidents.h"
#include "train/supervisor/job.h"
#include "train/supervisor/orders.h"
#include "train/supervisor/policy.h"
#include "train/supervisor/world.h"

namespace trireme::supervisor {

constexpr int gave_up = 69;  ///< exit code: too many restarts without a newer checkpoint

struct Options {
  Limits limits;
  double grace = 1;                         ///< seconds for a job's other processes after its command has ended
  std::optional<std::int64_t> least_ranks;  ///< not set: always all
  std::string world_command;                ///< prints how many ranks can be started; empty: the launcher is tried
};

class Supervisor {
 public:
  /// Throws ExitCode::usage for a command without --out, or one that cannot be what the options ask for.
  Supervisor(const Options& options, const Words& command);

  /// Until the job is done, is given up, fails for good or is told to leave; returns the exit code: the job's, or
  /// gave_up. Throws ExitCode::usage when --world-command has no answer at the start.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  int run_jobs();
  /// Until a job has begun: a run of before may be in its folder. `note`: what is to be said about it.
  Words first_words(std::string& note) const;
  std::optional<Words> next_words();
  /// How many to start when the launcher could not start as many as the last time; 0: no fewer, or --world-command
  /// says.
  int fewer_ranks() const;
  /// Nothing when --world-command has no answer.
  std::optional<int> available_ranks();
  Ending run_job(const Words& words);
  /// What to end with after a job that ended so; nothing when it is to be started again.
  std::optional<int> code_after(const Ending& ending);
  /// Takes what a user has asked for by a signal: at once when it is to kill the job.
  void take(int signal, const Job& job);
  void take_save(bool now);
  /// Whether every process of the job that runs has handlers for signals: it has written its configuration.
  bool listens() const;
  /// Notices the first step that this job makes, with which an incident before it is over.
  void watch_training();
  void note_incident(const Ending& ending, Verdict verdict);
  void close_incident(Time until);
  void write_open_incident();
  /// False when a signal asks to leave instead.
  bool pause(double seconds);
  static int left_without_job();
  std::int64_t newest_checkpoint() const;
  /// Whether --out holds a checkpoint of this run: not only of one that the command's --resume PATH has nothing to do
  /// with, which the job is to refuse.
  bool has_saved() const;
  /// Of the checkpoint that a job started now goes on from, unless it turns out to be damaged; -1: from the beginning,
  /// or from another run's checkpoint whose step is not known.
  std::int64_t next_resumed_step() const;
  /// What a job started now goes on from, for people: "step 20", "step 20 of PATH", "the beginning".
  std::string next_start() const;
  Time checkpoint_time() const;

  Options options_;
  Words command_;
  std::filesystem::path out_;
  std::optional<Elastic> elastic_;
  int ranks_ = 0;  // of the last start, when elastic_
  SignalQueue signals_;
  Budget budget_;
  std::int64_t restarts_ = 0;
  bool begun_ = false;               // a job has written its configuration: the folder is this run's
  std::int64_t waits_ = 0;           // for ranks, in a row
  bool world_asked_ = false;         // --world-command
  std::int64_t world_failures_ = 0;  // of it, in a row
  Orders orders_;
  bool killed_ = false;           // as a user asked
  bool launcher_failed_ = false;  // the last time

  // Of the job that runs, or ran last.
  Time started_{};
  std::optional<std::filesystem::file_time_type> configured_;  // when another had been, before it
  std::int64_t resumed_step_ = -1;                             // the newest checkpoint then
  std::int64_t told_save_at_ = -1;                             // the newest checkpoint when it was told to save
  bool save_lost_ = false;                                     // it was told and has ended without a newer one
  std::optional<Time> training_since_;
  LastWords last_words_;

  std::vector<Incident> incidents_;
  bool open_ = false;  // the last one is not over
  Time good_until_{};  // what was done by then was not lost in it
};

}  // namespace trireme::supervisor
