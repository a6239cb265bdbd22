// A job as a tree of processes. It starts in a session of its own, can be sent signals, and is over when the last of
// its processes has ended. Its orphans become children of this process (prctl PR_SET_CHILD_SUBREAPER), so none is
// missed. Afterwards, shared memory that the job left behind is removed.
//
//   SignalQueue signals;                       // SIGCHLD and signals from users, read instead of handled
//   Job job(command, signals, line);
//   while (!job.over()) job.wait(0.2);         // output, ends of processes, signals
//
// Linux only. Read next: ops/supervisor/job.cpp; ops/supervisor/supervisor.h, whose loop this serves.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "ops/supervisor/command.h"
#include "ops/supervisor/policy.h"

namespace trireme::supervisor {

/// While it exists, these signals are blocked and queued: SIGTERM, SIGINT (unless ignored, as for a script's background
/// jobs), SIGHUP (unless ignored, as under nohup), SIGTSTP (unless ignored), SIGUSR1, SIGUSR2, SIGCHLD and SIGPIPE.
/// Create only one at a time, on the main thread.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }  ///< readable when a signal is waiting
  /// The next signal from a user; nothing if none is waiting. SIGCHLD and SIGPIPE are dropped: SIGCHLD only wakes a
  /// poll() of fd().
  std::optional<int> next() const;
  void restore_in_child() const;  ///< between fork and exec

 private:
  int fd_ = -1;
  sigset_t before_{};
};

class Job {
 public:
  using Line = std::function<void(std::string_view line)>;

  /// Starts the command; execvp() searches PATH for it. Its standard error is copied to ours and passed line by line to
  /// `line`; its standard input is empty. It gets SIGTERM if this process dies. Throws ExitCode::retryable if the
  /// system has no resources for a process.
  Job(const Command& command, const SignalQueue& signals, Line line);
  /// Kills all remaining processes.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Returns when there is output, a process has ended or a signal arrived, or after `seconds`.
  void wait(double seconds);

  /// How the command ended; nothing while it runs. Processes that it started may live on.
  const std::optional<Ending>& ending() const { return ending_; }
  bool over() const { return ending_.has_value() && alone_; }  ///< the command and all its processes have ended

  void send(int signal) const;      ///< to the command only; a launcher forwards it
  void send_all(int signal) const;  ///< to every process of the job
  void kill_all() const;            ///< SIGKILL to every process of the job
  std::size_t processes() const;

  /// Removes what a killed job left in shared memory and temporary folders; after over(). Returns how many files and
  /// folders were removed.
  std::size_t remove_leftovers() const;

 private:
  void read_errors();
  void reap();
  void note_descendants();

  const SignalQueue& signals_;
  Line line_;
  pid_t pid_ = -1;
  int errors_ = -1;  // read end of the pipe from its standard error
  std::string partial_;
  std::optional<Ending> ending_;
  bool alone_ = false;
  std::set<pid_t> seen_;  // processes of the job found so far
  std::chrono::steady_clock::time_point next_look_;
};

/// Every process below `ancestor`, including zombies.
std::set<pid_t> descendants(pid_t ancestor);

/// Open MPI keeps the state of a job in FOLDER/ompi.HOST.USER/pid.N, where N is the process id of mpirun, and shared
/// memory in /dev/shm, named after job numbers. File names in the folder contain these numbers. Both remain only if
/// mpirun itself was killed. Removes both for the given mpiruns; returns how many files and folders were removed.
std::size_t remove_open_mpi_leftovers(const std::set<pid_t>& launchers, const std::filesystem::path& temporary,
                                      const std::filesystem::path& shared_memory);

}  // namespace trireme::supervisor
