// A clock for watchdogs of tests (WatchOptions::now). The watchdog counts silence once a test has brought the ranks to
// where it wants them, and not before, so its finding does not depend on how fast ranks get there.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel/comm/watch/beacon.h"

namespace trireme::testing {

/// A sixteenth of a second passes from one look of the watchdog to the next, if then every rank has joined and is in
/// its place: it shows that it waits for others, and its process has looked again; or it is away. The ranks are
/// threads, or processes, each with a clock of its own.
class SceneTime {
 public:
  using Clock = watch::Clock;
  static constexpr double seconds_per_look = 1.0 / 16;
  static constexpr int joined = 77, away = 78;  ///< kinds of work, which the ranks' pages show

  /// What the calling rank has done so far was only to prepare the scene.
  void join(std::shared_ptr<const watch::RankPages> pages) {
    watch::Beacon::current()->page().work = joined;
    const std::scoped_lock lock(mutex_);
    pages_ = std::move(pages);
    looks_.resize(static_cast<std::size_t>(pages_->ranks()), 0);
  }
  /// From now on the calling rank takes no lock, and starts nothing: it sleeps, or computes.
  static void leave() { leave(watch::Beacon::current()->page()); }
  static void leave(watch::RankPage& page) { page.work = away; }
  /// It goes on with the program.
  static void come_back() { watch::Beacon::current()->page().work = joined; }

  double seconds() const { return seconds_; }
  /// For the watchdog: once per look.
  Clock::time_point look() {
    const std::scoped_lock lock(mutex_);
    if (pages_ && all_in_place()) seconds_ = seconds_ + seconds_per_look;
    return Clock::time_point(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds_)));
  }

 private:
  bool all_in_place() {
    for (int rank = 0; rank < pages_->ranks(); ++rank) {
      const watch::RankPage& page = pages_->page(rank);
      if (page.work == away) continue;
      if (page.work != joined) return false;
      const auto waiting = page.waiting.read();
      if (!waiting || !waiting->blocked || waiting->record == 0 || waiting->list().empty()) return false;
      if (page.watchdog_ticks == looks_[static_cast<std::size_t>(rank)]) return false;
    }
    for (int rank = 0; rank < pages_->ranks(); ++rank)
      looks_[static_cast<std::size_t>(rank)] = pages_->page(rank).watchdog_ticks;
    return true;
  }

  std::mutex mutex_;
  std::shared_ptr<const watch::RankPages> pages_;
  std::vector<std::uint64_t> looks_;  // of each rank's watchdog, when time passed last
  std::atomic<double> seconds_{0};    // a rank that computes reads it without a lock
};

}  // namespace trireme::testing
