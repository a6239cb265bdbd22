// What the rank threads of one run_thread_ranks() share: the failure state, and the groups they have made.
// Read next: parallel/comm/threads/group.cpp.
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <utility>

#include "parallel/comm/collective.h"
#include "parallel/comm/common/barrier.h"
#include "parallel/comm/common/mailbox.h"
#include "parallel/comm/process_group.h"

namespace trireme::comm {

/// Thrown by the other ranks when one rank has failed. Users never see this error.
class PeerFailed : public Error {
 public:
  PeerFailed() : Error(ExitCode::retryable, "threads", "another rank has failed; its error is the one to read") {}
};

struct GroupState;

class ThreadWorld : public std::enable_shared_from_this<ThreadWorld> {
 public:
  explicit ThreadWorld(int ranks) : size_(ranks) {}

  int size() const { return size_; }
  const std::atomic<bool>& failed() const { return failed_; }

  /// Ends every wait of every rank. error() returns the first error that is not null.
  void fail(std::exception_ptr error);
  std::exception_ptr error() const;

  /// That rank's body has returned: ends the waits for it.
  void end(int world_rank);

  /// The shared state of the group of these members. The k-th calls of all members with the same list and name get the
  /// same state.
  std::shared_ptr<GroupState> join(const std::vector<int>& members, const std::string& name, int world_rank);

  /// Call when all ranks have ended: drops groups that some member never joined, as they and the world keep each other
  /// alive.
  void close();

 private:
  struct Forming {
    std::shared_ptr<GroupState> state;
    int joined = 0;
  };
  std::vector<std::shared_ptr<GroupState>> groups();  // existing ones; call with the lock held

  using Key = std::pair<std::vector<int>, std::string>;

  const int size_;
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::map<std::pair<Key, int>, int> calls_;        // by key and world rank: groups of that key the rank has joined
  std::map<std::pair<Key, int>, Forming> forming_;  // by key and number: kept until every member has joined
  std::vector<std::weak_ptr<GroupState>> groups_;
  std::vector<int> ended_;  // world ranks
};

/// Contributions up to this size are copied into a slot, so that the ranks need to meet only once.
inline constexpr std::size_t small_bytes = 16 * 1024;

/// The shared half of one group.
struct GroupState {
  /// What a rank shows the others about the operation it is in. Each slot is double-buffered by the parity of the
  /// sequence number: a rank can be one operation ahead of the slowest rank, never two. So the data of operation k is
  /// not overwritten while another rank may still read it.
  struct alignas(64) Slot {
    struct Shown {
      Signature signature;
      std::byte* x = nullptr;  ///< this rank's contribution
      std::unique_ptr<std::byte[]> copy;
    };
    std::array<Shown, 2> shown;
  };

  GroupState(std::shared_ptr<ThreadWorld> shared_world, std::vector<int> world_ranks);
  void wake();
  void leave(int world_rank);

  std::shared_ptr<ThreadWorld> world;
  const std::vector<int> members;
  Barrier barrier;
  std::vector<std::unique_ptr<Mailbox>> mailboxes;  // by receiver
  std::vector<Slot> slots;                          // by rank
};

/// This rank's end of a group.
std::shared_ptr<ProcessGroup> thread_group(std::shared_ptr<GroupState> state, const std::string& name, int rank,
                                           std::vector<int> members);

}  // namespace trireme::comm
