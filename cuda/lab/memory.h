// Counting for the ladders of kernels that move much and compute little. Their limit is bytes over bandwidth; how near
// a level comes to it is decided by how it asks for them. Counted from a level's source, for the whole problem:
//   bytes that it moves beyond L1, in whole sectors of 32, and
//   what a block waits for, one after the other: memory, other threads, and the launch itself;
// and where a level computes much for each value, its instructions, from what nvcc makes of it.
// The first gives a bound. The second gives a forecast, with times of an H200 that are assumptions until somebody
// measures (docs/ladder.md says how): it is for comparing levels, and may be wrong by a factor for any one of them.
// Read next: cuda/lab/gradient_norm/ladder.h.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda::lab {

/// A kernel's blocks, and what each does.
struct Pass {
  double blocks;
  double resident;  ///< blocks that a multiprocessor holds at a time
  double bytes;     ///< to and from memory, of all blocks
  double waits, barriers,
      wavefronts;  ///< of one: for memory, one after the other; for each other; in L1 and shared memory
  /// Of one: of all its warps, on the path that most take (nvdisasm shows them). 0: not counted, few beside the rest.
  double instructions = 0;
  /// Clocks that one keeps a multiprocessor's product units, or what feeds them, busy: cuda/lab/gemm/ladder.h. 0 where
  /// the kernel only moves bytes.
  double products = 0;
};

/// Of one launch or several. All but the bytes in microseconds of an H200.
struct MemoryCost {
  double bytes;
  double memory;      ///< the bytes at 4.8 TB/s
  double latency;     ///< waits and barriers of a block, times the turns in which the blocks go through the H200
  double wavefronts;  ///< one a clock and multiprocessor
  double issuing;     ///< four instructions a clock and multiprocessor; integer and f64 units do half of that at best
  double products;    ///< of the multiprocessor with the most blocks
  double launching;
  double forecast;            ///< the longest of the first five of each launch, and launching
  double least() const;       ///< by bytes and products: the bound
  const char* bound() const;  ///< what is most of it
};
MemoryCost cost_of(const Pass& pass);
MemoryCost operator+(const MemoryCost& a, const MemoryCost& b);

/// Waits of a loop that does nothing but load, once each time round: nvcc unrolls it by four, and the four loads are
/// under way together (to be seen in its PTX). It does not where the loop stores, branches or meets a barrier.
inline double unrolled(double times) { return times < 4 ? times : times / 4; }
/// A wait for what lies in L2, in terms of one for memory.
constexpr double kWaitForL2 = 0.4;

template <class Problem>
struct MemoryLevel {
  const char* name;
  const char* idea;  ///< what is new
  void (*run)(const Problem&, Stream);
  MemoryCost (*cost)(const Problem&);  ///< from sizes alone
};

}  // namespace trireme::cuda::lab
