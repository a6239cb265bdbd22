// Dry runs: a program runs its own code, allocates what it would allocate, and computes nothing. So the memory of any
// model is known, on a machine that could not hold it.
//
//   {
//     const DryRun dry;                     // of the calling thread
//     Trainer trainer(model, options);      // over a dry_world() (parallel/comm/dry_group.h)
//     trainer.gradients(...);
//     MemoryPool::current()->use(...);      // as in a real run
//   }
//
// In a dry run the thread has a memory pool of its own, whose large blocks are addresses without memory behind them,
// and parallel_for() and its like do not call their bodies: a kernel takes its workspace and writes nothing. Whole
// numbers, such as ids and the counts of a router, and small tensors are copied and filled as usual, because programs
// look at them: is_looked_at() in core/dry_kernels.h. A router chooses all experts equally often.
//
// A DryListener is told of every kernel, and may let this machine compute it, to see how long it takes.
// Read next: core/dry_kernels.cpp, train/step/rank_memory.h, parallel/comm/trace.h.
#pragma once

#include <functional>
#include <memory>
#include <utility>

namespace trireme {

class MemoryPool;
struct ProfileEvent;

/// Is told what a dry run would compute.
class DryListener {
 public:
  virtual ~DryListener() = default;
  /// The program calls a kernel: `describe` says which. `compute` runs it here: on a CPU with the call's tensors; else
  /// it does nothing.
  virtual void kernel(const std::function<ProfileEvent()>& describe, const std::function<void()>& compute) = 0;
};

/// While it lives, the calling thread computes nothing.
class DryRun {
 public:
  /// Begins a dry run of the calling thread; `listener` must outlive it. Throws ExitCode::internal if it is in one.
  /// `computes`: the listener will compute, so there must be memory.
  explicit DryRun(DryListener* listener = nullptr, bool computes = false);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;

  static bool on() { return state_.on; }                      ///< whether the calling thread is in a dry run
  static bool skips_work() { return state_.skips; }           ///< whether parallel_for() does nothing
  static DryListener* listener() { return state_.listener; }  ///< of the calling thread; null: none

  /// While it lives, kernels of the calling thread compute.
  class Computing {
   public:
    Computing() : skipped_(std::exchange(state_.skips, false)) {}
    ~Computing() { state_.skips = skipped_; }
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

   private:
    bool skipped_;
  };

 private:
  struct State {
    bool on = false, skips = false;
    DryListener* listener = nullptr;
  };
  static constinit thread_local State state_;

  std::shared_ptr<MemoryPool> previous_;
};

}  // namespace trireme
