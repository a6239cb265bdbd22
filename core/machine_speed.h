// What this machine can do, measured on the spot: the two sides of a roofline (Williams et al., CACM 2009). A kernel
// that computes F FLOPs and moves B bytes takes at least max(F / flops, B / bytes) seconds.
#pragma once

#include "core/dtype.h"

namespace trireme {

struct MachineSpeed {
  double flops = 0;       ///< FLOP/s of f32 products
  double bytes = 0;       ///< bytes/s read and written by a copy of more than caches hold
  double bf16_flops = 0;  ///< FLOP/s of bf16 products; 0: not measured

  double flops_of(DType dtype) const { return dtype == DType::bf16 && bf16_flops > 0 ? bf16_flops : flops; }
};

/// Of `team` threads of the calling rank at once, in f32 and in `dtype`: the best of a few tries; takes a few tenths of
/// a second.
MachineSpeed measure_machine_speed(int team, DType dtype);

/// FLOP/s of products of such elements. f32 (and f16, which is widened): independent multiply-adds in registers. bf16:
/// the innermost loop of the unit in use (core/cpu/processor.h), on panels that stay in the first-level cache: close to
/// what its instruction can do, as nothing comes from further away.
double measure_flops(int team, DType dtype);

}  // namespace trireme
