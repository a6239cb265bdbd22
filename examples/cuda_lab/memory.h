// Cost counts for the ladders of memory-bound kernels. Their limit is bytes over bandwidth; how near a level comes to
// it depends on how it loads them. Counted from a level's source, for the whole problem:
//   bytes that it moves beyond L1, in whole sectors of 32, and
//   a block's successive waits: for memory, for other threads, and for the launch itself;
// and, if a level computes much for each value, its instructions, from nvcc's code. The first gives a bound. The second
// gives a forecast, with times of an H200 that are assumptions until they are measured (docs/ladder.md explains how):
// it serves to compare levels, and may be wrong by a factor for any one of them.
// Read next: examples/cuda_lab/gradient_norm/ladder.h.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda::lab {

/// A kernel's blocks, and the work of each.
struct Pass {
  double blocks;
  double resident;  ///< blocks that a multiprocessor holds at a time
  double bytes;     ///< to and from memory, of all blocks
  // Of one block:
  double waits;       ///< successive waits for memory
  double barriers;    ///< waits of its threads for each other
  double wavefronts;  ///< in L1 and shared memory
  /// Of one block: all its warps, on the usual path (nvdisasm shows them). 0: not counted, because they are few.
  double instructions = 0;
  /// Clocks for which a block keeps a multiprocessor's product units, or their operand loads, busy:
  /// examples/cuda_lab/gemm/ladder.h. 0 if the kernel only moves bytes.
  double products = 0;
};

/// Of one launch or several; all times in microseconds of an H200.
struct MemoryCost {
  double bytes;
  double memory;      ///< the bytes at 4.8 TB/s
  double latency;     ///< waits and barriers of a block, times the waves of blocks on an H200
  double wavefronts;  ///< one per clock and multiprocessor
  double issuing;     ///< four instructions per clock and multiprocessor; integer and f64 units do half of that at best
  double products;    ///< of the multiprocessor with the most blocks
  double launching;
  double forecast;            ///< for each launch: the longest of memory to products, plus launching
  double least() const;       ///< by bytes and products: the bound
  const char* bound() const;  ///< the name of the longest
};
MemoryCost cost_of(const Pass& pass);
MemoryCost operator+(const MemoryCost& a, const MemoryCost& b);

/// Waits of a loop that only loads, once per iteration: nvcc unrolls it by four, and the four loads are under way
/// together (as its PTX shows). It does not do so if the loop stores, branches or has a barrier.
inline double unrolled(double times) { return times < 4 ? times : times / 4; }
/// The cost of a wait for L2, relative to one for memory.
constexpr double kWaitForL2 = 0.4;

template <class Problem>
struct MemoryLevel {
  const char* name;
  const char* idea;  ///< what is new
  void (*run)(const Problem&, Stream);
  MemoryCost (*cost)(const Problem&);  ///< from sizes alone
};

}  // namespace trireme::cuda::lab
