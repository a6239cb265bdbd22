// The blocks of a cluster under emulation. They run on one OS thread, and their threads interleave: one block runs
// until its threads all wait, or for a random time, and then the next. A block that was launched without a cluster is a
// cluster of one.
//
// Blocks of a cluster reach each other's shared memory in three ways: an arrival at an mbarrier, a multicast TMA load,
// and a barrier of all their threads (PTX ISA manual, "Cluster of Cooperative Thread Arrays"). A block must not end
// while another still reaches it.
// Read next: cuda/emu/block.h.
#pragma once

#include <memory>
#include <vector>

#include "cuda/emu/block.h"

namespace trireme::cuda::emu {

class Cluster {
 public:
  /// `stacks`: of each block.
  Cluster(const BlockShape& shape, const std::vector<std::unique_ptr<Stacks>>& stacks,
          const std::function<void()>& body);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  /// The blocks from `first` on (a linear index) are checked for races.
  void check_races(RaceLaunch& launch, std::uint32_t first);
  void count_traffic(Traffic& sum);
  /// Runs the blocks from `first` on to their end. Throws the Error of the first one that misbehaves.
  void run(std::uint64_t first, Schedule schedule);

  /// Block `rank`, for an access by the running thread to [pointer, pointer + bytes) of its shared memory; the pointer
  /// is into the running block's own. Faults unless that block has begun and not ended.
  Block& peer(int rank, const void* pointer, std::size_t bytes, const char* what, Site site);
  /// All threads of all blocks wait for each other.
  void barrier(Site site);

 private:
  void interleave(Schedule schedule);
  [[noreturn]] void fail_deadlocked() const;

  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<std::pair<Block*, Fiber*>> waiting_;  ///< at the barrier
};

/// Where `pointer`, into the shared memory of `from`, points in that of `to`.
template <class T>
T* in_block(const Block& to, const Block& from, T* pointer) {
  const auto* const begin = from.shared_at(0);
  return reinterpret_cast<T*>(to.shared_at(0) + (reinterpret_cast<const std::byte*>(pointer) - begin));
}

}  // namespace trireme::cuda::emu
