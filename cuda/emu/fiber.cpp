// Switching stacks: fifteen instructions on x86-64, ucontext elsewhere. See cuda/emu/fiber.h.
#include "cuda/emu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "core/error.h"

#if defined(TRIREME_EMU_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// void trireme_emu_switch(void** save, void* load): pushes the callee-saved registers, exchanges the stack pointers,
// pops the registers from the other stack and returns there. The floating-point control words are the same on all
// fibers and are not switched.
asm(R"(
.text
.align 16
.globl trireme_emu_switch
.type trireme_emu_switch, @function
trireme_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size trireme_emu_switch, .-trireme_emu_switch
)");
extern "C" void trireme_emu_switch(void** save, void* load);
#endif

namespace trireme::cuda::emu {

void switch_context(Context& from, Context& to, [[maybe_unused]] bool last) {
#if defined(TRIREME_EMU_ASAN)
  if (last) {
    // Frames below this one have returned and cleared the red zones around their variables; those above never return.
    const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
    const auto* const end = static_cast<const std::byte*>(from.stack_bottom) + from.stack_bytes;
    __asan_unpoison_memory_region(here, static_cast<std::size_t>(end - here));
  }
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_bytes);
#endif
#if defined(__x86_64__)
  trireme_emu_switch(&from.stack_pointer, to.stack_pointer);
#else
  swapcontext(&from.place, &to.place);
#endif
#if defined(TRIREME_EMU_ASAN)
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void entered_fiber([[maybe_unused]] Context& came_from) {
#if defined(TRIREME_EMU_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &came_from.stack_bottom, &came_from.stack_bytes);
#endif
}

void abandon_context([[maybe_unused]] Context& context) {
#if defined(TRIREME_EMU_ASAN)
  __asan_unpoison_memory_region(context.stack_bottom, context.stack_bytes);
#endif
}

void prepare_context(Context& context, std::byte* stack, std::size_t bytes, void (*entry)()) {
  context.stack_bottom = stack;
  context.stack_bytes = bytes;
  context.fake_stack = nullptr;
#if defined(__x86_64__)
  // What the first switch pops: six registers, then `entry` as the return address. At a function's entry the stack is 8
  // bytes off a multiple of 16, as after a call.
  auto* top = reinterpret_cast<std::uintptr_t*>(stack + bytes);
  *--top = 0;  // the return address of `entry`: none, which also ends a backtrace
  *--top = reinterpret_cast<std::uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  context.stack_pointer = top;
#else
  getcontext(&context.place);
  context.place.uc_stack.ss_sp = stack;
  context.place.uc_stack.ss_size = bytes;
  context.place.uc_link = nullptr;
  makecontext(&context.place, entry, 0);
#endif
}

namespace {

std::byte* new_mapping(int count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * Stacks::kBytes;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail(ExitCode::internal, "emu", "no {} bytes of address space for the stacks of {} threads", bytes, count);
  auto* const mapping = static_cast<std::byte*>(memory);
  for (int i = 0; i < count; ++i)
    mprotect(mapping + static_cast<std::size_t>(i) * Stacks::kBytes, Stacks::kGuard, PROT_NONE);
  return mapping;
}

/// Stacks that no launch uses now, by count. They are kept until the program ends.
struct Idle {
  std::mutex mutex;
  std::multimap<int, std::byte*> mappings;

  ~Idle() {
    for (const auto& [count, mapping] : mappings) munmap(mapping, static_cast<std::size_t>(count) * Stacks::kBytes);
  }
};
Idle& idle() {
  static Idle all;
  return all;
}

}  // namespace

Stacks::Stacks(int count) : count_(count), mapping_(nullptr) {
  {
    const std::scoped_lock lock(idle().mutex);
    if (const auto found = idle().mappings.find(count); found != idle().mappings.end()) {
      mapping_ = found->second;
      idle().mappings.erase(found);
    }
  }
  if (mapping_ == nullptr) mapping_ = new_mapping(count);
}

Stacks::~Stacks() {
  const std::scoped_lock lock(idle().mutex);
  idle().mappings.emplace(count_, mapping_);
}

std::byte* Stacks::bottom(int index) const { return mapping_ + static_cast<std::size_t>(index) * kBytes + kGuard; }

}  // namespace trireme::cuda::emu
