// MPI in this process: initialises and finalises it, and holds the one lock around every call. All waiting is polling;
// meanwhile the watchdog (parallel/comm/watch/watchdog.h) checks whether the ranks that are waited for are alive.
//
// No call here or in mpi/group.cpp blocks on a peer, with two exceptions: initialisation, and MPI_Comm_create_group.
// The latter has no nonblocking form in MPI 3, and is called only once every member is known to be about to call it.
// Read next: parallel/comm/mpi/group.cpp.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "parallel/comm/hosts/host_links.h"
#include "parallel/comm/mpi/board.h"
#include "parallel/comm/process_group.h"
#include "parallel/comm/watch/watchdog.h"

namespace trireme::comm::mpi {

class Runtime {
 public:
  /// Initialises MPI on the first call. Lives until the process ends.
  static Runtime& get();
  static bool up();  ///< whether get() has been called

  std::mutex& lock() { return mutex_; }  ///< to be held around every MPI call
  MPI_Comm world() const { return world_; }
  MPI_Comm control() const { return control_; }  ///< all ranks, for traffic outside groups
  int rank() const { return rank_; }
  int size() const { return size_; }
  NodeBoard& board() { return *board_; }
  std::shared_ptr<const watch::RankPages> pages() const;  ///< null before watch()
  /// Starts the watchdog, once, and the links between hosts if there are several. The calling thread is this process's
  /// rank. Collective over all ranks, as part of initialisation.
  void watch(const WatchOptions& options);

  /// Calls `test` with the lock held until it returns true. During a long wait, calls wait.lasts(), and at
  /// intervals `look` without the lock; `look` may throw. `patiently`: sleep early, because the cores have other
  /// work.
  void poll(
      watch::Wait& wait, const std::function<bool()>& test, bool patiently, const std::function<void()>& look = [] {});
  /// Completes an MPI_Isend in the background; keeps `x` alive until then.
  void finish_later(MPI_Request request, Tensor x);

  /// No rank can go on: every poll throws this error, or a general one when it is null.
  void fail(std::exception_ptr error);
  /// Keeps `x` alive until the process ends: MPI may still write into it after a failure.
  void keep(const Tensor& x);

  [[noreturn]] void abort(int exit_code);
  /// Ends this rank alone, shortly after another has called abort().
  [[noreturn]] void leave(int exit_code);

 private:
  struct Send {
    MPI_Request request;
    Tensor x;
  };

  Runtime();
  void finalize();
  void throw_failure();
  std::vector<int> running() const;  // other ranks of this node that have not ended
  bool aborted() const;              // another rank of this node is ending the job
  bool reap();                       // frees completed sends, lock held; true when none is left
  void pump();                       // thread that progresses sends while this rank computes

  std::mutex mutex_;
  MPI_Comm world_ = MPI_COMM_NULL, control_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::unique_ptr<NodeBoard> board_;
  bool spin_ = false;
  std::shared_ptr<watch::Beacon> beacon_;
  std::unique_ptr<watch::Watchdog> watchdog_;
  std::unique_ptr<hosts::HostLinks> links_;
  std::list<Send> sends_;
  std::condition_variable sends_changed_;
  std::thread pump_;
  bool stop_ = false;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::vector<Tensor> kept_;
};

/// This process's place among the hosts of the job.
struct HostPlace {
  int host = 0;  ///< the number of its host; that of rank 0 is 0
  /// Null where all ranks are on one host, and on all but the first rank of a host.
  std::unique_ptr<hosts::HostLinks> links;
};
/// Collective over all ranks of `world`, which may block. On rank 0 it waits up to 5 seconds for the other hosts.
HostPlace link_hosts(MPI_Comm world, const std::shared_ptr<const watch::RankPages>& pages, double timeout,
                     const hosts::Callbacks& callbacks);

/// What MPI says about a result that is not MPI_SUCCESS.
std::string error_text(int code);
/// Throws unless an MPI call returned MPI_SUCCESS. No result of MPI may be dropped: tests/layering checks this.
void check_code(int code, const char* where);
/// The MPI type of an element's bits: for all operations that only move elements.
MPI_Datatype bits_of(DType dtype);
/// The MPI type that MPI can add; MPI_DATATYPE_NULL for bf16 and f16, of which MPI has none.
MPI_Datatype number_of(DType dtype);

}  // namespace trireme::comm::mpi
