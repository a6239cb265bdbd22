// One thread block under emulation: its fibers, the scheduler that runs them one at a time, all that threads wait for,
// and its shared memory. Blocks share only global memory, unless they form a cluster (cuda/emu/cluster.h); one OS
// thread runs each block to its end.
//
// A thread runs until it must wait (a barrier, a shuffle, an mbarrier, a wait for asynchronous copies); then the
// scheduler picks another. When no thread can go on, operations in flight complete. If there are none, the block is
// deadlocked, and the report lists which threads wait where.
// Read next: cuda/emu/block.cpp, then cuda/emu/device.h: what a kernel calls.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cuda/device/types.h"
#include "cuda/emu/fiber.h"
#include "cuda/emu/launch.h"
#include "cuda/emu/schedule.h"

namespace trireme::cuda::emu {

/// A line of a kernel. As a default argument, here() names the line of the call.
struct Site {
  const char* file;
  int line;
  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Site& other) const { return line == other.line && file == other.file; }
};

using Operation = std::function<void()>;

/// Operations committed together; the oldest group completes first.
struct AsyncGroups {
  std::vector<Operation> open;                 ///< issued, not yet committed
  std::vector<std::vector<Operation>> closed;  ///< committed, oldest first; empty vectors are done
  std::uint32_t committed = 0, waited = 0;     ///< groups so far; how many of them a wait has covered
  void commit() {
    closed.push_back(std::move(open));
    open.clear();
    ++committed;
  }
  /// Completes the oldest groups until at most `newest` are left.
  void wait(std::size_t newest);
  bool in_flight() const;
};

enum class State : std::uint8_t { runnable, waiting, done };

struct Fiber {
  Context context;
  Dim3 thread;    ///< threadIdx
  int index = 0;  ///< linear, x fastest
  State state = State::runnable;
  const char* waits_for = "";
  Site site{"", 0};
  std::uint64_t priority = 0;
  AsyncGroups copies;      ///< cp.async
  AsyncGroups tma_stores;  ///< cp.async.bulk to global memory
};

/// Threads of one warp (or warp group) that gather for one operation in which all of them take part.
struct Rendezvous {
  const char* what;
  Site site;
  std::uint32_t mask;
  int expected;
  int arrived;
  std::array<void*, 128> arguments;  ///< by lane (by thread of the warp group)
};

struct NamedBarrier {
  int expected = 0;
  std::vector<Fiber*> arrived{};
  int arrivals = 0;
  std::vector<std::pair<int, Site>> sites{};  ///< (warp, line): the lanes of a warp must agree
};

/// A declaration of shared memory.
struct SharedArray {
  const char* name;
  std::size_t element_bytes;
  const void* declaration;  ///< which TRIREME_SHARED, of which instantiation; null: dynamic memory
};

/// A range of shared memory: [begin, begin + bytes) from the start of the block's shared memory.
struct SharedRange {
  Site site;
  SharedArray array;
  std::size_t begin, bytes;
  std::size_t end() const { return begin + bytes; }
};

class Cluster;      // cuda/emu/cluster.h
class RaceChecker;  // cuda/emu/race.h
class RaceLaunch;
class BlockTraffic;  // cuda/emu/traffic.h
struct Traffic;
class WgmmaRegisters;  // cuda/emu/wgmma_registers.h

class Block {
 public:
  /// `rank`: of the block in its cluster.
  Block(const BlockShape& shape, const Stacks& stacks, const std::function<void()>& body, Cluster& cluster, int rank);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // ---- from begin to end (the cluster calls these) -----------------------------------------------------------------
  void prepare(Dim3 index, Schedule schedule);
  /// Lets one thread run until it waits, or completes one asynchronous operation. False: nothing in the block can go
  /// on. Throws an Error that names block, thread and line when the block misbehaves.
  bool step();
  bool ended() const { return live_ == 0; }  ///< all threads have
  void check_end();
  void abandon();  ///< discards threads that have not ended
  std::string deadlock_report() const;

  // ---- waiting -----------------------------------------------------------------------------------------------------
  /// Suspends the running thread until wake(); `what` and `site` are for reports.
  void wait(const char* what, Site site);
  void wake(Fiber& fiber);
  /// Lets other threads run first, in random orders: called where they may observe what was just done.
  void give_way();
  /// All lanes of `mask` bring an argument; the last one to arrive runs complete(arguments by lane) for all.
  template <class Complete>
  void meet_warp(std::uint32_t mask, const char* what, Site site, void* argument, Complete&& complete) {
    Rendezvous& meeting = arrive_warp(mask, what, site, argument);
    if (meeting.arrived < meeting.expected) return wait(what, site);
    complete(meeting.arguments.data());
    if (traffic_ != nullptr && mask == ~0U) warp_met();
    leave(meeting, fiber().index / 32 * 32, 32);
  }
  /// The same for the 128 threads of a warp group.
  template <class Complete>
  void meet_warp_group(const char* what, Site site, void* argument, Complete&& complete) {
    Rendezvous& meeting = arrive_group(what, site, argument);
    if (meeting.arrived < meeting.expected) return wait(what, site);
    complete(meeting.arguments.data());
    leave(meeting, fiber().index / 128 * 128, 128);
  }
  void sync_warp(std::uint32_t mask, Site site);
  void barrier(int id, int threads, bool waits, Site site);

  // ---- shared memory (shared.cpp) ----------------------------------------------------------------------------------
  std::byte* dynamic_shared(const char* name, std::size_t alignment, Site site);
  std::byte* static_shared(const SharedArray& array, std::size_t bytes, std::size_t alignment, Site site);
  /// Faults unless [pointer, pointer + bytes) is inside one allocation and aligned; returns its shared address.
  std::uint32_t check_shared(const void* pointer, std::size_t bytes, std::size_t alignment, const char* what,
                             Site site) const;
  std::uint32_t check_shared_address(std::uint64_t address, std::size_t bytes, const char* what, Site site) const;
  std::byte* shared_at(std::uint32_t address) const { return shared_ + address; }
  /// The memory that the asynchronous proxy (TMA, wgmma) sees: generic writes reach it only at a proxy fence.
  std::byte* async_view_at(std::uint32_t address) const { return async_view_ + address; }
  void publish_to_async_proxy();
  /// "slab[1] of the shared memory of norm.cu:63"; outside of all arrays, an element of the nearest one.
  std::string shared_place(const std::byte* pointer) const;
  /// The allocation that holds all of [address, address + bytes); null: none.
  const SharedRange* shared_range(std::uint64_t address, std::size_t bytes) const;

  // ---- asynchronous operations (async.cpp) -------------------------------------------------------------------------
  /// Runs `operation` now, or adds it to `group`, or (group null) to those whose completion the scheduler chooses.
  void start(Operation operation, AsyncGroups* group);
  void wait_mbarrier(std::uint64_t* word, std::uint32_t parity, Site site);
  void mbarrier_flipped(const std::uint64_t* word);

  // ---- registers (registers.cpp) -----------------------------------------------------------------------------------
  void set_max_registers(int count, bool increase, Site site);

  // ---- races (race.h) ----------------------------------------------------------------------------------------------
  void check_races(RaceLaunch& launch, std::uint32_t block_index);
  RaceChecker* race() const { return race_.get(); }  ///< null: this launch is not checked

  // ---- what accesses cost (traffic.h) ------------------------------------------------------------------------------
  void count_traffic(Traffic& sum);
  BlockTraffic* traffic() const { return traffic_.get(); }  ///< null: this launch is not counted

  Fiber& fiber() const { return *running_; }
  const Fiber& fiber(int index) const { return fibers_[static_cast<std::size_t>(index)]; }
  static constexpr std::size_t kSharedSpan = 256 * 1024;  ///< with the zones; all that a wgmma descriptor can address
  Dim3 index() const { return index_; }
  Cluster& cluster() const { return cluster_; }
  int rank() const { return rank_; }
  const BlockShape& shape() const { return shape_; }
  int threads() const { return static_cast<int>(fibers_.size()); }
  /// Throws: the running thread did something that a GPU does not allow or leaves undefined.
  [[noreturn]] void fault(Site site, const std::string& what) const;
  std::string place(const Site& site) const;

  AsyncGroups& wgmma_of_group() { return wgmma_[static_cast<std::size_t>(running_->index / 128)]; }
  const AsyncGroups& wgmma_of(const Fiber& fiber) const { return wgmma_[static_cast<std::size_t>(fiber.index / 128)]; }
  WgmmaRegisters& wgmma_registers_of(const Fiber& fiber) const {
    return *wgmma_registers_[static_cast<std::size_t>(fiber.index / 128)];
  }
  std::size_t tma_loads_in_flight() const { return in_flight_.size(); }
  const std::byte* stack_of(const Fiber& fiber) const { return stacks_.bottom(fiber.index); }

 private:
  static void fiber_main();
  Fiber* pick();
  bool complete_one();
  void fill_zone(std::size_t begin, std::size_t end);
  void check_zones() const;
  [[noreturn]] void zone_fault(const SharedRange* before, const SharedRange* after, std::size_t written) const;
  void add_range(SharedRange range);
  void check_shared_limit(Site site) const;
  Rendezvous& arrive_warp(std::uint32_t mask, const char* what, Site site, void* argument);
  Rendezvous& arrive_group(const char* what, Site site, void* argument);
  void leave(Rendezvous& meeting, int first_thread, int width);
  void warp_met();
  void prepare_registers(std::size_t groups);
  int used_registers() const;
  std::string register_report() const;  ///< empty: no thread waits for registers

  struct RegisterWait {
    Fiber* fiber;
    int count;
  };
  struct MbarrierWait {
    Fiber* fiber;
    const std::uint64_t* word;
    std::uint32_t parity;
  };

  BlockShape shape_;
  const Stacks& stacks_;
  const std::function<void()>& body_;
  Cluster& cluster_;
  int rank_;
  Dim3 index_;
  Schedule schedule_;
  SplitMix64 choice_{0};
  Context scheduler_;
  std::vector<Fiber> fibers_;
  std::vector<Fiber*> runnable_;
  std::size_t head_ = 0;  ///< fifo only: the front of runnable_
  Fiber* running_ = nullptr;
  int live_ = 0;
  std::exception_ptr failure_;
  std::vector<std::vector<std::unique_ptr<Rendezvous>>> meetings_;  ///< per warp
  std::vector<std::unique_ptr<Rendezvous>> group_meetings_;         ///< per warp group; null: none
  std::array<NamedBarrier, 16> barriers_;
  std::vector<MbarrierWait> mbarrier_waits_;
  std::vector<Operation> in_flight_;
  std::vector<AsyncGroups> wgmma_;                                ///< per warp group
  std::vector<std::unique_ptr<WgmmaRegisters>> wgmma_registers_;  ///< per warp group
  std::vector<int> registers_;  ///< per warp group, of a thread; empty: setmaxnreg has no effect
  int register_pool_ = 0;       ///< of the block
  std::vector<RegisterWait> register_waits_;

  std::unique_ptr<std::byte[]> shared_memory_, async_memory_;  ///< filled with NaN when the kernel allocates it
  std::byte *shared_ = nullptr, *async_view_ = nullptr;
  std::vector<SharedRange> ranges_;
  std::size_t shared_end_ = 0;   ///< of the last zone
  std::size_t shared_used_ = 0;  ///< what a GPU would use: without zones
  std::size_t dynamic_begin_ = 0, dynamic_alignment_ = 0;
  std::unique_ptr<RaceChecker> race_;
  std::unique_ptr<BlockTraffic> traffic_;
};

/// The block and thread that this OS thread is emulating.
inline constinit thread_local Block* running_block = nullptr;
inline constinit thread_local Fiber* running_fiber = nullptr;

}  // namespace trireme::cuda::emu
