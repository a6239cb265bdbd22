// A job as processes: started in a session of its own, told signals, and over only when the last of its processes is
// gone, whoever their parents were. Orphans among them become children of this process (prctl PR_SET_CHILD_SUBREAPER),
// so none can get lost; what a job leaves in shared memory is removed after it.
//
//   SignalQueue signals;                       // SIGCHLD and what a user sends, read instead of handled
//   Job job(words, signals);
//   while (!job.over()) job.wait(0.2);         // output, ends of processes, signals
//
// Linux only. Read next: train/supervisor/job.cpp; train/supervisor/supervisor.h, whose loop this serves.
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

#include "train/supervisor/command.h"
#include "train/supervisor/policy.h"

namespace trireme::supervisor {

/// While it lives, SIGTERM, SIGINT (unless it is ignored, as in a script's background jobs), SIGHUP (unless it is
/// ignored, as under nohup), SIGUSR1, SIGUSR2 and SIGCHLD wait in a queue. One at a time, on the main thread.
class SignalQueue {
 public:
  SignalQueue();
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;

  int fd() const { return fd_; }  ///< readable when one waits
  /// The next one a user sent; nothing when there is none. SIGCHLD only wakes who waits for fd().
  std::optional<int> next() const;
  void restore_in_child() const;  ///< between fork and exec

 private:
  int fd_ = -1;
  sigset_t before_{};
};

class Job {
 public:
  using Line = std::function<void(std::string_view line)>;

  /// Starts the command, which a shell's PATH is searched for. Its standard error goes to ours, and line by line to
  /// `line`; it has no standard input. It is sent SIGTERM should this process be killed. Throws ExitCode::retryable
  /// when the system has no room for a process.
  Job(const Words& command, const SignalQueue& signals, Line line);
  /// Kills what is left.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Until something happens: output, the end of a process, a signal for us; at most so many seconds.
  void wait(double seconds);

  /// How the command ended, once it has. Others that it started may live on.
  const std::optional<Ending>& ending() const { return ending_; }
  bool over() const { return ending_.has_value() && alone_; }  ///< and no process of it is left

  void send(int signal) const;  ///< to the command alone: a launcher passes it on
  void kill_all() const;        ///< SIGKILL to every process of it
  std::size_t processes() const;

  /// What a job that was killed has left in memory and in temporary folders; after over(). Returns how many files and
  /// folders were removed.
  std::size_t remove_leftovers() const;

 private:
  void read_errors();
  void reap();
  void see();

  const SignalQueue& signals_;
  Line line_;
  pid_t pid_ = -1;
  int errors_ = -1;  // the reading end of its standard error
  std::string partial_;
  std::optional<Ending> ending_;
  bool alone_ = false;
  std::set<pid_t> seen_;  // its processes, as found now and then
  std::chrono::steady_clock::time_point next_look_;
};

/// Every process below `ancestor`, zombies included.
std::set<pid_t> descendants(pid_t ancestor);

/// Open MPI keeps the state of a job in FOLDER/ompi.HOST.USER/pid.N, N the process of mpirun, and shared memory in
/// /dev/shm under the job's number, which names of files in the former tell. Removes both for these mpiruns, if there
/// is anything of theirs, as is the case only when mpirun itself was killed. Returns how many it removed.
std::size_t remove_open_mpi_leftovers(const std::set<pid_t>& launchers, const std::filesystem::path& temporary,
                                      const std::filesystem::path& shared_memory);

}  // namespace trireme::supervisor
