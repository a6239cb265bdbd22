// How the emulator chooses where hardware may choose: which thread runs next, and when an asynchronous operation
// completes. A schedule is a pure function of its seed, so a failure is reproducible.
// Read next: cuda/emu/block.h.
#pragma once

#include <cstdint>

namespace trireme::cuda::emu {

enum class Order : std::uint8_t { fifo, lifo, random, priorities };
/// early: an asynchronous operation completes when it is issued. late: only when a wait requires it.
enum class Completion : std::uint8_t { early, late, random };

const char* name(Order order);
const char* name(Completion completion);

struct Schedule {
  std::uint64_t seed = 0;

  Order order() const { return static_cast<Order>(seed % 4); }
  /// Seeds 0 to 3: fifo late, lifo early, random random, priorities late; then the other pairs.
  Completion completion() const {
    constexpr Completion table[3] = {Completion::late, Completion::early, Completion::random};
    return table[(seed + seed / 4) % 3];
  }
};

/// The schedule of launches from the calling OS thread, for as long as the object lives. Without one, seed 0.
class ScopedSchedule {
 public:
  explicit ScopedSchedule(Schedule schedule);
  ~ScopedSchedule();
  ScopedSchedule(const ScopedSchedule&) = delete;
  ScopedSchedule& operator=(const ScopedSchedule&) = delete;

 private:
  Schedule previous_;
};

Schedule current_schedule();

/// Small, and good enough to choose among threads.
class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

}  // namespace trireme::cuda::emu
