// Counts what a kernel's accesses to memory cost a GPU: the wavefronts of shared memory and the sectors of global
// memory. One access is what the lanes of a warp do by one execution of one instruction.
//
// Shared memory has 32 banks of four bytes. An access takes one wavefront if its lanes want different banks, or the same
// word of a bank; otherwise as many as the fullest bank has words. Accesses of 8 and 16 bytes a lane are made by half and
// by quarter warps, each with a wavefront at least; what goes beyond these is a bank conflict. Global memory is moved in
// sectors of 32 aligned bytes: an access moves every sector that its lanes touch, each once. The least for it is the
// number of sectors that its bytes would fill.
//
// Loads and stores come from the hooks of the race build (race_hooks.cpp), so only kernels that are compiled for it are
// counted, and of global memory only what is watched (watched.h). The emulator runs threads one by one: the k-th
// execution of an instruction by each lane, since its warp last met at a barrier or a shuffle, is taken as one access.
// ldmatrix and stmatrix count as one wavefront for each matrix of eight rows, cp.async as its two halves, a TMA copy as
// one access to global memory. What wgmma and TMA do in shared memory is not counted.
// Read next: cuda/emu/traffic.cpp; tests/cuda/traffic_test.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "cuda/emu/block.h"
#include "cuda/emu/watched.h"

namespace trireme::cuda::emu {

/// All accesses of one instruction to one array.
struct InstructionTraffic {
  std::uint32_t pc = 0;  ///< lines_of(pc) in race.h
  std::string array;     ///< the name of the watched memory; empty: shared memory
  bool shared = false, writes = false;
  std::uint64_t accesses = 0;      ///< of a warp
  std::uint64_t transactions = 0;  ///< wavefronts of shared memory, sectors of global memory
  std::uint64_t least = 0;         ///< what they could be at best, for the same bytes
  std::uint64_t excess() const { return transactions - least; }
};

/// What the launches have cost that were counted.
struct Traffic {
  std::vector<InstructionTraffic> instructions;
  std::size_t shared_bytes = 0;           ///< of the block that has most
  std::uint64_t barriers = 0;             ///< of all threads, in the block that has most
  std::uint64_t shared_reads = 0;         ///< loads of shared memory, of each thread
  std::uint64_t reads_beside_copies = 0;  ///< those made while a cp.async of the block was not waited for
  /// TMA loads of a block that were in flight at the same time, where copies complete late: under schedule 0.
  std::uint64_t most_tma_loads = 0;

  std::uint64_t wavefronts() const;      ///< of shared memory
  std::uint64_t bank_conflicts() const;  ///< wavefronts beyond the least
  std::uint64_t sectors(const std::string& array, bool writes) const;
  std::uint64_t excess_sectors() const;
};

/// Counts in a block. The emulator and the hooks call it.
class BlockTraffic {
 public:
  BlockTraffic(const Block& block, Traffic& sum);
  ~BlockTraffic();
  BlockTraffic(const BlockTraffic&) = delete;
  BlockTraffic& operator=(const BlockTraffic&) = delete;

  /// A load or store of the running thread.
  void access(const void* at, std::size_t bytes, bool writes, const void* pc);
  /// The running thread has issued a cp.async, in the group that it commits next.
  void copy_issued();
  /// So many TMA loads are in flight.
  void tma_loads(std::size_t in_flight) { most_tma_loads_ = std::max<std::uint64_t>(most_tma_loads_, in_flight); }
  /// ldmatrix and stmatrix: eight rows of 16 bytes.
  void matrix(const std::array<const std::byte*, 8>& rows, bool writes, const void* pc);
  /// TMA: any number of pieces of global memory, then the end of the copy.
  void bulk_piece(const void* at, std::size_t bytes) { bulk_.push_back({static_cast<const std::byte*>(at), bytes}); }
  void end_bulk(bool writes, const void* pc);
  /// The `threads` threads from `first` on have met: what each did before and does later is not one access.
  void meet(int first, int threads);
  void barrier();                      ///< of all threads
  void end(std::size_t shared_bytes);  ///< of the block

 private:
  struct Piece {
    const std::byte* at = nullptr;
    std::size_t bytes = 0;
  };
  /// An access that lanes are still to join.
  struct Open {
    std::uint32_t lanes = 0;  ///< bits: have joined
    std::array<Piece, 32> pieces{};
  };
  struct Executions {
    std::deque<Open> open;
    std::uint32_t closed = 0;               ///< executions before those in `open`
    std::array<std::uint32_t, 32> count{};  ///< by each lane
  };
  using Instruction = std::uint64_t;  ///< pc, and whether it writes
  /// While it lives, accesses are not counted: the linker may choose an instrumented copy of what the counting uses.
  class Busy {
   public:
    explicit Busy(bool& busy) : busy_(busy) { busy_ = true; }
    ~Busy() { busy_ = false; }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    bool& busy_;
  };

  void close(Instruction instruction, const Open& access);
  void count(Instruction instruction, const std::vector<Piece>& pieces, bool in_phases);
  void count_shared(InstructionTraffic& to, const std::vector<Piece>& pieces, bool in_phases) const;
  static void count_global(InstructionTraffic& to, const std::vector<Piece>& pieces);
  InstructionTraffic& entry(Instruction instruction, std::size_t range);
  bool copies_in_flight() const;

  const Block& block_;
  Traffic& sum_;
  WatchedRanges watched_;
  const std::byte* stacks_;
  std::uint64_t barriers_ = 0, shared_reads_ = 0, reads_beside_copies_ = 0, most_tma_loads_ = 0;
  std::vector<std::uint32_t> last_copy_;  ///< by thread: the group of its last cp.async, counted from 1
  bool busy_ = false;
  std::vector<std::unordered_map<Instruction, Executions>> warps_;
  std::map<std::pair<Instruction, std::size_t>, InstructionTraffic> entries_;  ///< by the number of a watched range
  std::vector<Piece> bulk_;
};

/// Where launches from this OS thread are counted; null: they are not.
inline constinit thread_local Traffic* traffic_here = nullptr;

/// While it lives, counts what launches from this OS thread cost. Defined in race_hooks.cpp, so that
/// only programs with kernels compiled for it can use it.
class ScopedTraffic {
 public:
  ScopedTraffic();
  ~ScopedTraffic();
  ScopedTraffic(const ScopedTraffic&) = delete;
  ScopedTraffic& operator=(const ScopedTraffic&) = delete;
  const Traffic& sum() const { return sum_; }

 private:
  Traffic sum_;
  Traffic* previous_;
};

}  // namespace trireme::cuda::emu
