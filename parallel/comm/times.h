// How long a rank communicates, and how much of that is exposed, that is, spent waiting. Measured at the operations
// themselves, on whichever thread they run. Total time minus exposed time is hidden behind computation. (A step's time
// minus its parts cannot measure this: it is zero by construction.)
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "core/profile.h"

namespace trireme {

struct CommunicationTimes {
  double seconds = 0;  ///< operations under way: collectives from their turn in the group to their end, receives
                       ///< while they are waited for, sends while they copy
  double exposed_seconds = 0;  ///< of the rank's own thread, waiting for them
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
  /// Lets a helper thread (a communication thread) count for its rank.
  static void set_current(std::shared_ptr<CommunicationClock> clock);

  CommunicationTimes read() const;

  /// What a Scope's lifetime is added to: the time with operations under way, the exposed time, or both.
  enum class Count : std::uint8_t { operation, exposed, both };
  /// Counts its lifetime for the calling thread's rank.
  class Scope {
   public:
    explicit Scope(Count count);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    ProfileScope event_;
    CommunicationClock& clock_;
    Count count_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  };

 private:
  std::atomic<std::int64_t> nanoseconds_{0}, exposed_{0};
};

}  // namespace trireme
