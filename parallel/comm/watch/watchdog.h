// Watchdog: the thread that notices lost ranks, one for each process. It looks at all ranks' pages about twenty times a
// second, and ends the waits of its own process's ranks when find_faulty_ranks() finds that they wait in vain. It never
// calls a transport, so nothing can block it.
// Read next: parallel/comm/watch/observer.h and faulty_ranks.h; parallel/comm/watch/report.h for its messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "parallel/comm/process_group.h"
#include "parallel/comm/watch/beacon.h"
#include "parallel/comm/watch/observer.h"

namespace trireme {

/// How the watchdog watches a job.
struct WatchOptions {
  ProcessGroup::Deadline timeout = std::chrono::seconds(30);
  /// Called with the error of a lost rank, on the watchdog's thread, when the process cannot end by itself: its ranks
  /// wait in a library, or a rank thread does not return. A program should end itself and its job here.
  std::function<void(const std::exception_ptr&)> on_lost = {};
  /// Called with a message about the hosts of a job, such as a slow link, on a thread of its own. Training goes on.
  std::function<void(const std::string&)> on_notice = {};
  /// The time in which silence is counted. Tests have one of their own.
  std::function<std::chrono::steady_clock::time_point()> now = std::chrono::steady_clock::now;
};

/// As the functions with these names in process_group.h.
void run_thread_ranks(int ranks, int threads_per_rank, const WatchOptions& options,
                      const std::function<void(std::shared_ptr<ProcessGroup>)>& body);
std::shared_ptr<ProcessGroup> mpi_world(const WatchOptions& options, SumOrder fastest = SumOrder::ranks);

namespace watch {

/// Of the ranks of mpi_world(); null before it, and outside a launcher.
std::shared_ptr<const RankPages> mpi_rank_pages();

class Watchdog {
 public:
  /// Calls `on_lost` at most once, with a LostRank (report.h). Calls `on_end`, if given, at every look once another
  /// process of this node has been ending the job for a quarter of a second.
  Watchdog(std::shared_ptr<const RankPages> pages, ProcessGroup::Deadline timeout,
           std::function<void(const std::exception_ptr&)> on_lost, std::function<void()> on_end = {},
           std::function<Clock::time_point()> now = Clock::now);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void add(std::shared_ptr<Beacon> local);  ///< a rank of this process
  void remove(const Beacon& local);         ///< it has ended
  /// Reports ranks that cannot be seen from here so many seconds later: on each host another number, so that one of
  /// several that wait for each other reports first.
  void report_unseen_later(double seconds) { unseen_delay_ = seconds; }

 private:
  void run();
  bool look(double seconds, std::unique_lock<std::mutex>& lock);  // true if it found a lost rank
  bool another_ends_job() const;                                  // a rank of another process is ending it

  std::shared_ptr<const RankPages> pages_;
  const double timeout_;
  std::function<void(const std::exception_ptr&)> on_lost_;
  std::function<void()> on_end_;
  std::function<Clock::time_point()> now_;
  std::atomic<double> unseen_delay_{0};
  double ending_ = 0;  // seconds since a rank was seen to end the job, also while this process was stopped
  Observer observer_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::vector<std::shared_ptr<Beacon>> local_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace watch
}  // namespace trireme
