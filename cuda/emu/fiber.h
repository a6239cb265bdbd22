// A fiber: its own stack, and the point where it continues. Each CUDA thread of a block runs as one fiber; all fibers
// of a block live on one OS thread, so switching costs fifteen instructions on x86-64, and a debugger sees ordinary C++
// frames.
// Read next: cuda/emu/block.h, which schedules them.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define TRIREME_EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIREME_EMU_ASAN 1
#endif
#endif

namespace trireme::cuda::emu {

/// The saved state of a stack that is not running. Also used for the scheduler, which runs on the OS thread's own
/// stack.
struct Context {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t place{};
#endif
  const void* stack_bottom = nullptr;  ///< AddressSanitizer must be told which stack is entered
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;
};

/// Saves the running state in `from` and continues in `to`. `last`: `from` will never be resumed.
void switch_context(Context& from, Context& to, bool last = false);

/// Call first on a new fiber; `came_from` then holds the bounds of the stack that started it.
void entered_fiber(Context& came_from);

/// Prepares `context` so that the first switch to it calls `entry`, which never returns. The stack must have no
/// AddressSanitizer red zones: a fiber clears its own when it ends, which is cheaper than clearing a whole stack.
void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*entry)());

/// Discards a fiber that has not ended: its stack may be reused or unmapped.
void abandon_context(Context& context);

/// `count` stacks in one mapping, with an unreadable page below each: an overflow ends the program instead of
/// corrupting a neighbour. Mappings are reused: a training step has a thousand launches.
class Stacks {
 public:
  explicit Stacks(int count);
  ~Stacks();
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  std::byte* bottom(int index) const;
  static constexpr std::size_t kBytes = std::size_t{1} << 17;  ///< per stack, with its guard page
  static constexpr std::size_t kGuard = 4096;

 private:
  int count_;
  std::byte* mapping_;
};

}  // namespace trireme::cuda::emu
