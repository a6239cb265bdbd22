// This machine's limits, measured now by `team` threads at once. Each is the best of several tries, because a limit is
// what is possible without disturbance. Read next: core/machine_speed.h.
#pragma once

#include "core/tensor.h"

namespace trireme::bench {

/// Bytes/s over more memory than caches hold: of a sum; and of x = a x + b (read and written), like an optimizer's
/// update.
struct MemorySpeed {
  double read, update;
};
MemorySpeed memory_speed(int team);

/// Memory that all threads only read, from end to end: measures the current read bandwidth at each call.
class MemorySweep {
 public:
  static constexpr std::int64_t bytes = std::int64_t{512} << 20;
  explicit MemorySweep(int team);
  void read() const;

 private:
  int team_;
  Tensor memory_;
};

}  // namespace trireme::bench
