// A level of a ladder: one version of a kernel, which differs from the one before it by one idea.
// Read next: docs/ladder.md, and examples/cuda_lab/gemm/ladder.h for a ladder.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda::lab {

template <class Problem>
struct Level {
  const char* name;
  const char* idea;  ///< what is new
  double h200;       ///< milliseconds of an H200 for Ladder::timed, as measured: bench/results/gpu_nvidia_h200.md
  void (*run)(const Problem&, Stream);
};

}  // namespace trireme::cuda::lab
