// Whether a rank that waits should go on waiting. It follows who waits for whom to the ranks that hold everyone up, and
// asks of those only whether they live: a rank that works may take as long as it likes.
//
//   patient    somebody it waits for, directly or not, works
//   died       ... has no process any more
//   stopped    ... does not wait itself, and has shown no sign of life for the timeout
//   unseen     ... is on another node, and four timeouts have passed: what it does cannot be seen from here
//   crossed    everyone waits for another of them, in different operations, and has done so for the timeout
//   stalled    all are in one operation, and it has not moved for four timeouts
//
// A function of what was observed, without clocks. Read next: parallel/comm/watch/observer.h, which observes.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::watch {

/// One rank, as others see it. Seconds are observed time: while the observer itself does not run, none passes.
struct RankSigns {
  bool visible = false;  ///< it is on this node
  bool ended = false;    ///< it has done all its work
  bool failed = false;   ///< it is ending the job with an error of its own
  bool gone = false;     ///< the system has no such thread any more
  bool blocked = false;  ///< its own thread waits for other ranks
  double quiet = 0;  ///< since its last sign of life: a heartbeat, the arrival of one it waits for, or unless it waits
                     ///< for others, processor time
  double beatless = 0;           ///< since its last heartbeat
  double deaf = 0;               ///< since its process was last seen to run
  std::uint64_t operation = 0;   ///< that it waits in: the same number for one operation of one group; 0: none
  std::vector<int> waits_for{};  ///< world ranks; empty when it does not wait
  bool more = false;             ///< and others, not in the list
  bool confirmed = true;         ///< what it waits for has been written since its last sign of life
};

enum class Outcome : std::uint8_t { patient, died, stopped, unseen, crossed, stalled };

struct Verdict {
  Outcome outcome = Outcome::patient;
  std::vector<int> ranks;  ///< who is to blame: lost, unseen, or in the ring
};

/// A rank that computes this many timeouts without one heartbeat has lost itself in a loop.
constexpr double longest_without_beat = 20;
/// Where nothing can be seen to be wrong this many timeouts must pass: ranks on other nodes, operations in which all
/// are and live, and ranks that only wait for a thread of their own.
constexpr double patience_with_unseen = 4;

/// For a rank that waits, by world rank.
Verdict judge(int waiter, const std::vector<RankSigns>& ranks, double timeout);

/// Ranks whose process has ended without their having ended or failed: lost at once, whoever waits.
std::vector<int> died(const std::vector<RankSigns>& ranks);

}  // namespace trireme::watch
