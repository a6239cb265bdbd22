// What the compiler calls before each load and store of a file compiled with -fsanitize=thread. The flag is used only
// for compiling: these functions replace ThreadSanitizer's own runtime, which knows neither fibers nor blocks.
// Everything that is not shared memory or watched memory is ignored, in particular the stacks of threads.
#include <cstring>
#include <utility>

#include "cuda/emu/race.h"
#include "cuda/emu/traffic.h"

namespace trireme::cuda::emu {

namespace {

/// The checker itself uses standard library templates; the linker may choose an instrumented copy of them.
thread_local bool inside = false;

void seen(const void* at, std::size_t bytes, bool write, const void* pc) {
  const Block* const block = running_block;
  if (block == nullptr || inside) return;
  inside = true;
  if (block->race() != nullptr)
    block->race()->instrumented(at, bytes, write ? AccessKind::write : AccessKind::read, pc);
  if (block->traffic() != nullptr) block->traffic()->access(at, bytes, write, pc);
  inside = false;
}

}  // namespace

ScopedRaceCheck::ScopedRaceCheck() { race_checking = true; }
ScopedRaceCheck::~ScopedRaceCheck() { race_checking = false; }

ScopedTraffic::ScopedTraffic() : previous_(std::exchange(traffic_here, &sum_)) {}
ScopedTraffic::~ScopedTraffic() { traffic_here = previous_; }

void move(void* to, const void* from, std::size_t bytes, bool stores);
void move(void* to, const void* from, std::size_t bytes, bool stores) {
  seen(stores ? to : from, bytes, stores, __builtin_return_address(0));
  std::memcpy(to, from, bytes);
}

}  // namespace trireme::cuda::emu

#define ACCESS(name, bytes, write) \
  void __tsan_##name(void* at);    \
  void __tsan_##name(void* at) { trireme::cuda::emu::seen(at, bytes, write, __builtin_return_address(0)); }
#define SIZES(bytes)                          \
  ACCESS(read##bytes, bytes, false)           \
  ACCESS(write##bytes, bytes, true)           \
  ACCESS(unaligned_read##bytes, bytes, false) \
  ACCESS(unaligned_write##bytes, bytes, true)

extern "C" {
SIZES(1)
SIZES(2)
SIZES(4)
SIZES(8)
SIZES(16)

void __tsan_read_range(void* at, std::size_t bytes);
void __tsan_read_range(void* at, std::size_t bytes) {
  trireme::cuda::emu::seen(at, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes);
void __tsan_write_range(void* at, std::size_t bytes) {
  trireme::cuda::emu::seen(at, bytes, true, __builtin_return_address(0));
}

// Host code in the same files counts references and changes of tensors, and reads how many multiprocessors to leave
// free. Kernels have no atomics, so the checker ignores these.
int __tsan_atomic32_load(const volatile int* at, int order);
int __tsan_atomic32_load(const volatile int* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_fetch_add(volatile int* at, int value, int order);
int __tsan_atomic32_fetch_add(volatile int* at, int value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
long __tsan_atomic64_load(const volatile long* at, int order);
long __tsan_atomic64_load(const volatile long* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
void __tsan_atomic64_store(volatile long* at, long value, int order);
void __tsan_atomic64_store(volatile long* at, long value, int) { __atomic_store_n(at, value, __ATOMIC_SEQ_CST); }

// Calls and virtual tables are ignored: lines come from debug information.
void __tsan_init();
void __tsan_init() {}
void __tsan_func_entry(void* caller);
void __tsan_func_entry(void*) {}
void __tsan_func_exit();
void __tsan_func_exit() {}
void __tsan_vptr_update(void** table, void* value);
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void** table);
void __tsan_vptr_read(void**) {}
}
