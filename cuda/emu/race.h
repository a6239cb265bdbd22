// The race checker compares every access of a kernel to shared memory, and to the global memory that a test
// watches, with earlier accesses to the same bytes. Two overlapping accesses, one of them a write, are a race if
// neither happens before the other, in whatever order they ran. Plain loads and stores reach the checker through
// the calls that -fsanitize=thread inserts before them (race_hooks.cpp); the emulator reports copies and matrix
// instructions.
//
// Accesses are ordered only by what the CUDA memory model guarantees: program order, barriers, __syncwarp, an
// mbarrier's phase, waits for asynchronous groups. Shuffles, votes, ldmatrix and mma.sync do not order accesses.
// Each block has a checker; those of a cluster number their actors together, so that one can know of another's.
// Read next: cuda/emu/race.cpp, then race_report.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/emu/block.h"
#include "cuda/emu/shadow.h"
#include "cuda/emu/watched.h"

namespace trireme::cuda::emu {

/// Launches from the calling OS thread are race-checked while the object lives. Defined in race_hooks.cpp, so that only
/// programs with kernels compiled for it can use it.
class ScopedRaceCheck {
 public:
  ScopedRaceCheck();
  ~ScopedRaceCheck();
  ScopedRaceCheck(const ScopedRaceCheck&) = delete;
  ScopedRaceCheck& operator=(const ScopedRaceCheck&) = delete;
};

struct Race {
  Access earlier, later;
  bool only_fence_missing;  ///< ordered, but no proxy fence in between
  std::string place;        ///< which byte of what
};

/// An access that is an error by itself: outside the watched tensor or every shared allocation, a write to an input, a
/// read of what nobody wrote.
struct Stray {
  Access access;
  std::string what;
};

/// State of one launch: the shadow of global memory, and the races found.
class RaceLaunch {
 public:
  /// The range that holds the byte at `address`, and its shadow; null: the byte is not watched.
  struct Found {
    const WatchedRange* range;
    Shadow* shadow;
  };
  Found find(const std::byte* address);
  void throw_races(const char* kernel, std::uint64_t seed) const;
  /// Throws if none of the kernel's own loads and stores was seen: then the check is void.
  void require_accesses(const char* kernel) const;
  std::vector<Race> races;    ///< of different pairs of lines, four at most
  std::vector<Stray> strays;  ///< of different lines, four at most
  std::uint64_t instrumented_accesses = 0;

  RaceLaunch(const Dim3& grid, const Dim3& block);
  ~RaceLaunch();
  Dim3 grid, block;
  RaceLaunch(const RaceLaunch&) = delete;
  RaceLaunch& operator=(const RaceLaunch&) = delete;

 private:
  WatchedRanges ranges_;
  std::vector<std::unique_ptr<Shadow>> shadows_;  ///< of each range, made at the first access
};

/// A thread's last access to four bytes of its stack, since its warp group's first wgmma.fence.
struct RegisterAccess {
  std::uint32_t fences = 0;  ///< of the warp group so far
  std::uint32_t pc = 0;
  std::uint32_t kind = 0;
};

class StackAccesses {
 public:
  RegisterAccess& at(std::size_t offset);

 private:
  static constexpr std::size_t kPageBytes = 4096;
  using Page = std::array<RegisterAccess, kPageBytes / 4>;
  std::array<std::unique_ptr<Page>, Stacks::kBytes / kPageBytes> pages_{};  ///< made at the first access
};

class RaceChecker {
 public:
  RaceChecker(Block& block, RaceLaunch& launch, std::uint32_t block_index);

  // ---- accesses, by the running thread unless said otherwise --------------------------------------------------------
  void access(const void* at, std::size_t bytes, AccessKind kind, const void* pc) {
    access_by(self(), at, bytes, kind, pc);
  }
  void instrumented(const void* at, std::size_t bytes, AccessKind kind, const void* pc);  ///< a plain load or store
  void access_by(const Fiber& fiber, const void* at, std::size_t bytes, AccessKind kind, const void* pc);
  void copy(void* to, const void* from, std::size_t bytes, std::size_t valid, const void* pc);  ///< cp.async
  /// A load into the memory of the block that `owner` checks: the use of the mbarrier; then, for each piece:
  void tma_load(RaceChecker& owner, const std::uint64_t* word, const void* pc);
  void tma_load_piece(RaceChecker& owner, const std::uint64_t* word, void* to, const void* from, std::size_t bytes,
                      const void* pc);
  void tma_store_piece(void* to, const void* from, std::size_t bytes, const void* pc);
  /// Collects what all threads of the running warp group know, for the operands of one wgmma.
  void begin_wgmma();
  void wgmma_operand(const void* at, std::size_t bytes, const void* pc);
  /// The registers of one wgmma, with its arguments by thread of the group (race_registers.cpp).
  void wgmma_registers(void* const* arguments, Site site);

  // ---- what orders accesses -----------------------------------------------------------------------------------------
  void barrier_arrive(int id, bool waits);
  void barrier_complete(int id);
  void sync_warp(std::uint32_t mask);
  void proxy_fence();
  void mbarrier_arrive(RaceChecker& owner, const std::uint64_t* word, const void* pc);  ///< in that block's memory
  void mbarrier_complete(const std::uint64_t* word);                                    ///< a phase ends
  void mbarrier_passed(const std::uint64_t* word);                                      ///< a wait is over
  /// All threads of the blocks of a cluster have met.
  static void cluster_barrier(const std::vector<RaceChecker*>& blocks);

 private:
  struct Thread {
    std::shared_ptr<const Knowledge> past{};  ///< shared by all that left the same barrier
    Step own = 1;
    StackAccesses stack{};
  };
  struct Gathering {
    Knowledge known;
    std::vector<std::shared_ptr<const Knowledge>> merged;  ///< pasts that are in `known`
    std::vector<int> waiting;
  };
  struct MbarrierState {
    std::size_t actor;
    Step phases = 0;  ///< ended
    Gathering arriving{};
    std::shared_ptr<const Knowledge> released{};
  };
  /// Who accesses memory, and what it knows: its past, and its own steps that the past does not include yet.
  struct View {
    const RaceChecker* of;
    const Knowledge* past;
    const Fiber* fiber;  ///< null: a warp group
    std::size_t actor;   ///< the thread or the group's wgmma
    Step own;            ///< the actor's last step that comes before the access
    bool async_proxy;    ///< sees the writes of threads only after a proxy fence
  };

  /// `count` neighbours in a shadow with the same content, of which `cell` is the first.
  struct EqualCells {
    Shadow& shadow;
    Cell& cell;
    std::size_t count;
  };

  const Fiber& self() const { return block_.fiber(); }
  Thread& thread_of(const Fiber& fiber) { return threads_[static_cast<std::size_t>(fiber.index)]; }
  // Actors: see race.cpp.
  std::size_t threads() const { return threads_.size(); }
  std::size_t groups() const { return (threads() + 127) / 128; }
  std::size_t actors_of_block() const { return 3 * threads() + 1 + groups() + kMostMbarriers; }
  std::size_t actor_of(const Fiber& f) const { return first_actor_ + static_cast<std::size_t>(f.index); }
  std::size_t copies_of(const Fiber& f) const { return threads() + actor_of(f); }
  std::size_t stores_of(const Fiber& f) const { return 2 * threads() + actor_of(f); }
  std::size_t stored() const { return first_actor_ + 3 * threads(); }
  std::size_t wgmma_of(const Fiber& f) const { return stored() + 1 + static_cast<std::size_t>(f.index) / 128; }
  bool in_cluster(std::uint32_t block) const;
  MbarrierState& state_of(const std::uint64_t* word);
  View view_of(const Fiber& fiber, bool async_proxy);
  Step seen(const View& view, std::size_t actor) const;
  bool needs_fence(const View& view, const Access& earlier) const;
  bool ordered(const View& view, const Access& earlier) const;
  void gather(Gathering& gathering, const Fiber& fiber);
  void let_go(Gathering& gathering);
  Access make(std::size_t actor, Step step, AccessKind kind, const Fiber& fiber, const void* pc) const;
  bool touch(const View& view, const Access& access, const void* at, std::size_t bytes);  ///< false: not watched
  void touch_cells(const View& view, const Access& access, const EqualCells& cells, const std::byte* at);
  void add_read(const View& view, const Access& access, const EqualCells& cells);
  void touch_shared(const View& view, const Access& access, std::size_t offset, std::size_t bytes);
  void touch_global(const View& view, const Access& access, const WatchedRange& range, Shadow& shadow,
                    const std::byte* address, std::size_t bytes);
  void stack_access(AccessKind kind, const void* at, std::size_t bytes, const void* pc);
  void require_fence(const Fiber& fiber, const void* at, std::size_t bytes, Site site);
  void report(const View& view, const Access& earlier, const Access& access, const std::byte* at);
  void report_stray(const Access& access, const std::function<std::string()>& what);

  static constexpr std::size_t kMostMbarriers = 64;

  Block& block_;
  RaceLaunch& launch_;
  std::uint32_t block_index_, first_block_;  ///< first_block_: of the cluster
  std::vector<Thread> threads_;
  const std::byte* stacks_;  ///< of all threads, one after another
  std::size_t first_actor_;
  std::vector<Gathering> barriers_;
  std::map<const std::uint64_t*, MbarrierState> mbarriers_;
  Shadow shared_;
  const Knowledge* group_past_ = nullptr;                                     ///< what begin_wgmma collected
  Knowledge group_;                                                           ///< it, unless all threads know the same
  std::shared_ptr<const Knowledge> last_past_, last_released_, last_joined_;  ///< mbarrier_passed: all do the same
};

/// Kernel lines of an instruction, innermost call first: "tile.h:56 in gemm_sm80.cu:141".
std::string lines_of(std::uint32_t pc);
/// Finds the lines of many instructions at once, which takes as long as for one of them.
void look_up_lines(const std::vector<std::uint32_t>& pcs);
std::uint32_t program_offset(const void* pc);

/// Whether launches from this OS thread are checked.
inline constinit thread_local bool race_checking = false;

}  // namespace trireme::cuda::emu
