// What this machine can do at most, measured on the spot by `team` threads at once: the best of several tries each, as a
// limit is what was possible when nothing else was in the way. Read next: core/machine_speed.h.
#pragma once

#include "core/tensor.h"

namespace trireme::bench {

/// FLOP/s of products of such elements. f32 (and f16, which is widened): multiply-adds in registers. bf16: the innermost
/// loop of the unit in use (core/cpu/processor.h), on panels that stay in the first-level cache: close to what its
/// instruction can do, as nothing comes from further away.
double peak_flops(int team, DType dtype);

/// Bytes/s over more than caches hold: of a sum; and, read and written, of x = a x + b, as an optimizer treats its state.
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
