// How many bytes of a parameter ZeRO keeps on each rank. build/bin/zero_memory compares this with the allocator's
// count; docs/parallelism.md has a picture.
#pragma once

namespace trireme {

struct ZeroBytes {
  double weights, gradients, optimizer;
  double total() const { return weights + gradients + optimizer; }
};

/// Bytes per parameter of --zero `stage` over `ranks` ranks: bf16 weights (2), f32 gradients (4), f32 master, m and v
/// of AdamW (12). The totals for stages 0 to 3 are 18, 6 + 12/N, 2 + 16/N and 18/N (Rajbhandari et al. 2020, figure 1,
/// with 2 bytes of gradients).
constexpr ZeroBytes zero_bytes(int stage, double ranks) {
  return {.weights = stage >= 3 ? 2 / ranks : 2,
          .gradients = stage >= 2 ? 4 / ranks : 4,
          .optimizer = stage >= 1 ? 12 / ranks : 12};
}

}  // namespace trireme
