// How many blocks a persistent kernel starts. Its blocks stay on their multiprocessors and take tile after tile by a
// fixed rule, so a block that finds its multiprocessor occupied begins only when others end, and the kernel takes twice
// the time. NCCL's kernels occupy multiprocessors while they wait for other ranks. So persistent kernels leave as many
// free as one operation of NCCL may occupy. For a whole tile, the margin changes only which block computes it, so the
// bits are the same. For tiles that gemm_sm90 divides (cuda/kernels/gemm_cut.h), it changes the order of the sum, and
// so the last bits. If blocks took their tiles from a counter, no margin would be necessary. But the counter would need
// memory that is set to zero before every launch, and a second message between the warps of a block for every tile.
// Read next: parallel/comm/nccl/library.cpp, which sets the margin.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

inline std::atomic<int> multiprocessors_kept_free{0};

/// From now on persistent kernels leave at least this many multiprocessors free, for the life of the process.
inline void keep_multiprocessors_free(int count) {
  int before = multiprocessors_kept_free;
  while (before < count && !multiprocessors_kept_free.compare_exchange_weak(before, count)) {}
}

inline int usable_multiprocessors() { return std::max(1, multiprocessors() - multiprocessors_kept_free); }

/// One block for each tile, but no more than `resident` on each multiprocessor.
inline unsigned persistent_blocks(std::int64_t tiles, int resident = 1) {
  return static_cast<unsigned>(std::min<std::int64_t>(tiles, std::int64_t{usable_multiprocessors()} * resident));
}

}  // namespace trireme::cuda
