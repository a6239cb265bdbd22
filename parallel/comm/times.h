// How long a rank communicates, and how much of that is exposed, that is, spent waiting. Measured at the operations
// themselves, on whichever thread they run. Total time minus exposed time is hidden behind computation. (A step's time
// minus its parts cannot measure this: it is zero by construction.)
//
// A clock runs while at least one operation is under way. So an operation that is made of others, as a collective of
// messages, counts once, and so do two at the same time: no rank communicates for longer than the time that passes.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include "core/profile.h"

namespace trireme {

struct CommunicationTimes {
  double seconds = 0;  ///< with operations under way: collectives from their turn in the group to their end, receives
                       ///< and collectives while they are waited for, sends while they copy
  double exposed_seconds = 0;  ///< the part of them that the rank's own thread waits
};

inline CommunicationTimes operator-(const CommunicationTimes& a, const CommunicationTimes& b) {
  return {a.seconds - b.seconds, a.exposed_seconds - b.exposed_seconds};
}

inline CommunicationTimes operator+(const CommunicationTimes& a, const CommunicationTimes& b) {
  return {a.seconds + b.seconds, a.exposed_seconds + b.exposed_seconds};
}

/// The times of one rank since it started.
class CommunicationClock {
 public:
  /// Of the calling thread's rank; made on first use.
  static const std::shared_ptr<CommunicationClock>& current();
  /// Lets a helper thread (a communication thread) count for its rank. What it waits for is not exposed.
  static void set_current(std::shared_ptr<CommunicationClock> clock);

  CommunicationTimes read() const;

  /// An operation under way, or a wait for one, on the calling thread. On the rank's own thread it is exposed.
  class Scope {
   public:
    enum class Event : std::uint8_t { run, wait };  ///< what it is called in a profile
    explicit Scope(Event event);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ProfileScope event_;
    CommunicationClock& clock_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  /// The time in which at least one Scope is open.
  class Union {
   public:
    void open(Clock::time_point now);
    void close(Clock::time_point now);
    double seconds(Clock::time_point now) const;

   private:
    int open_ = 0;
    Clock::time_point begin_;
    Clock::duration before_{0};
  };

  mutable std::mutex mutex_;
  Union operations_, exposed_;
};

}  // namespace trireme
