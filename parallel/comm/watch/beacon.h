// Beacon: writes a rank's page. It is thread-local: every thread that works for a rank has the rank's beacon, so
// groups, layers and loops report what they do without an extra argument. On a thread without a beacon reporting costs
// one test.
//
//   const PhaseScope phase(Phase::forward);                      // until it goes out of scope
//   const Recording record(group, Record::What::recv, ...);      // an operation, from its begin to its end
//   const auto missing = [&] { return std::vector<int>{peer}; }; // world ranks
//   Wait wait(record, missing); ... wait.lasts();                // from now on others see whom this rank waits for
//
// Read next: parallel/comm/watch/watchdog.h, which reads all ranks' pages.
#pragma once

#include <chrono>
#include <list>
#include <mutex>
#include <thread>

#include "parallel/comm/watch/page.h"

namespace trireme::watch {

using Clock = std::chrono::steady_clock;
std::int64_t nanoseconds_now();  ///< of this clock, as pages state times
/// The same without the time in which the calling thread waited for a processor. So a rank's times do not grow when
/// several ranks share a processor.
std::int64_t own_nanoseconds();

class Wait;

class Beacon {
 public:
  /// Writes the page of `rank`, on the calling thread; the page then shows this thread's system id.
  /// `clock`: measures phases.
  Beacon(std::shared_ptr<RankPages> pages, int rank, std::int64_t (*clock)() = own_nanoseconds);
  ~Beacon();
  Beacon(const Beacon&) = delete;
  Beacon& operator=(const Beacon&) = delete;

  /// Of the calling thread's rank; may be null.
  static const std::shared_ptr<Beacon>& current();
  /// Also sets the thread's heartbeat.
  static void set_current(std::shared_ptr<Beacon> beacon);

  const std::shared_ptr<RankPages>& pages() const { return pages_; }
  int rank() const { return rank_; }
  RankPage& page() const { return page_; }

  /// `work`: ranks with the same number do the same work, so one that is slower than the others is worth naming.
  void set_place(std::string_view place, int work);
  /// Begins a step, and writes the times of the previous one to the page.
  void begin_step(std::int64_t step);
  void set_state(RankState state) { page_.state = state; }

  /// For the watchdog of this process: writes to the page whom this rank waits for now.
  void show_waits();

 private:
  friend class Wait;
  friend class Blocked;
  friend class PhaseScope;

  std::shared_ptr<RankPages> pages_;
  int rank_;
  RankPage& page_;
  std::int64_t (*clock_)();
  std::mutex mutex_;
  std::list<const Wait*> waits_;
  Waiting shown_;
  std::atomic<int> blocked_{0};
  const std::thread::id owner_ = std::this_thread::get_id();
  // Used by the rank's own thread only:
  std::int64_t blocked_nanoseconds_ = 0;
  StepTimes times_;
};

/// While this lives, the rank's own thread waits for other ranks, or for a communication thread that does. On any other
/// thread it does nothing: a communication thread waits while the rank computes.
class Blocked {
 public:
  Blocked();
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  Beacon* beacon_;
  std::int64_t start_ = 0;
};

/// While this lives, the rank's own thread is in this phase. The innermost phase counts.
class PhaseScope {
 public:
  explicit PhaseScope(Phase phase);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  void turn(int phase);

  Beacon* beacon_;
  int outer_ = -1, phase_;
  std::int64_t blocked_before_ = 0, start_ = 0;
};

/// One operation in the flight recorder, from now until it goes out of scope.
class Recording {
 public:
  explicit Recording(Record record);  ///< number, times, step and phase are filled in
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  std::uint64_t number() const { return record_.number; }

 private:
  Beacon* beacon_;
  Record record_;
};

/// An operation's wait for other ranks. Costs nothing until lasts() is called: most waits end before that.
class Wait {
 public:
  /// `missing()`: the world ranks it waits for now; called from the watchdog's thread. It must outlive the wait.
  template <class Missing>
  Wait(const Recording& record, const Missing& missing)
      : number_(record.number()),
        context_(&missing),
        missing_([](const void* context) { return (*static_cast<const Missing*>(context))(); }) {}
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  void lasts();  ///< may be called again

 private:
  friend class Beacon;

  std::uint64_t number_;
  const void* context_;
  std::vector<int> (*missing_)(const void*);
  Beacon* beacon_ = nullptr;  // set by lasts()
};

}  // namespace trireme::watch
