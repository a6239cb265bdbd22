// What this machine can do at most, measured on the spot by `team` threads at once: the best of several tries each, as
// a limit is what was possible when nothing else was in the way. Read next: core/machine_speed.h.
#pragma once

#include "core/tensor.h"

namespace trireme::bench {

/// Bytes/s over more than caches hold: of a sum; and, read and written, of x = a x + b, as an optimizer treats its
/// state.
struct MemorySpeed {
  double read, update;
};
MemorySpeed memory_speed(int team);

/// Memory that is only read, from end to end by all threads: what memory gives at the time of a call.
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
