// What ZeRO leaves of a parameter on each rank, in bytes. build/bin/zero_memory holds this against what the allocator
// counts; docs/parallelism.md has the picture.
#pragma once

namespace trireme {

struct ZeroBytes {
  double weights, gradients, optimizer;
  double total() const { return weights + gradients + optimizer; }
};

/// Bytes per parameter of --zero `stage` over `ranks` ranks: bf16 weights (2), f32 gradients (4), f32 master, m and v
/// of AdamW (12). 18, 6 + 12/N, 2 + 16/N and 18/N in all (Rajbhandari et al. 2020, figure 1, which has 2 bytes of
/// gradients).
constexpr ZeroBytes zero_bytes(int stage, double ranks) {
  return {.weights = stage >= 3 ? 2 / ranks : 2,
          .gradients = stage >= 2 ? 4 / ranks : 4,
          .optimizer = stage >= 1 ? 12 / ranks : 12};
}

}  // namespace trireme
