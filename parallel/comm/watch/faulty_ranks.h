// Decides whether a waiting rank should go on waiting. It follows the waits to the ranks that everyone waits for, and
// checks only that those are alive: a rank that computes has no time limit while it sends heartbeats. After 20 timeouts
// without one it counts as lost.
//
//   none        a rank it waits for, directly or not, works
//   died        ... no longer has a process
//   stopped     ... does not wait itself, and has shown no sign of life for the timeout, or no heartbeat for 20
//   unseen      ... is on another node, where it is not visible, and four timeouts have passed
//   deadlocked  ranks have waited for one another, in different operations, for the timeout
//   stalled     all are in one operation, which has not moved for four timeouts
//
// This is a pure function of observations and reads no clock. Read next: parallel/comm/watch/observer.h, which
// observes.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::watch {

/// One rank, as others see it. Seconds are observed time: it stands still while the observer itself does not run.
struct RankSigns {
  bool visible = false;  ///< it is on this node
  bool ended = false;    ///< it has done all its work
  bool failed = false;   ///< it is ending the job with an error of its own
  bool gone = false;     ///< the system has no such thread any more
  bool blocked = false;  ///< its own thread waits for other ranks
  /// Since its last sign of life: a heartbeat, the arrival of a rank it waits for, or processor time. Processor time
  /// does not count while it waits for others.
  double since_sign_of_life = 0;
  double since_heartbeat = 0;    ///< since its last heartbeat
  double since_ran = 0;          ///< since its process was last seen to run
  std::uint64_t operation = 0;   ///< that it waits in: a number for the operation and group; 0: none
  std::vector<int> waits_for{};  ///< world ranks; empty when it does not wait
  bool more = false;             ///< it also waits for ranks that are not in the list
  bool confirmed = true;         ///< what it waits for was written after its last sign of life
};

enum class WaitFault : std::uint8_t { none, died, stopped, unseen, deadlocked, stalled };

struct FaultyRanks {
  WaitFault fault = WaitFault::none;
  std::vector<int> ranks;  ///< the ranks at fault: lost, not visible, or in the cycle
};

/// A rank that computes for this many timeouts without a heartbeat counts as lost: it must be in an endless loop.
constexpr double longest_without_beat = 20;
/// This many timeouts must pass where no fault is visible: ranks on other nodes, operations in which all ranks are
/// present and alive, and ranks that only wait for a thread of their own.
constexpr double patience_with_unseen = 4;

/// Why `waiter`, a rank that waits, should not go on waiting. `ranks`: by world rank.
FaultyRanks find_faulty_ranks(int waiter, const std::vector<RankSigns>& ranks, double timeout);

/// Ranks whose process is gone although they neither ended nor failed: lost at once, even if nobody waits for them.
std::vector<int> died(const std::vector<RankSigns>& ranks);

}  // namespace trireme::watch
