// Measures this machine's speed at run time: the two limits of a roofline (Williams et al., CACM 2009). A kernel that
// computes F FLOPs and moves B bytes takes at least max(F / flops, B / bytes) seconds.
// Read next: core/profiled_kernels.h.
#pragma once

#include "core/dtype.h"

namespace trireme {

struct MachineSpeed {
  double flops = 0;       ///< FLOP/s of f32 products
  double bytes = 0;       ///< bytes/s read and written by a copy of more than caches hold
  double bf16_flops = 0;  ///< FLOP/s of bf16 products; 0: not measured

  double flops_of(DType dtype) const { return dtype == DType::bf16 && bf16_flops > 0 ? bf16_flops : flops; }
};

/// Measures `team` threads of the calling rank running at once, in f32 and in `dtype`. Takes the best of a few tries,
/// in a few tenths of a second.
MachineSpeed measure_machine_speed(int team, DType dtype);

/// FLOP/s of products of such elements. f32 (and f16, which is widened): independent multiply-adds in registers. bf16:
/// the innermost loop of the unit in use (core/cpu/processor.h), on panels that stay in the first-level cache. That is
/// close to the peak of its instruction.
double measure_flops(int team, DType dtype);

}  // namespace trireme
