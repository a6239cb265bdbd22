// Level 2: one kernel, in which a thread takes a head of a token.
//
// This moves 10 bytes per value, and divides once per row instead of once per value. The thread that writes lse also
// read it, so no thread waits for another. But the lanes of a warp are 256 bytes apart: each load of out, each of part
// and each store is 32 lines, that is, 96 wavefronts for 32 values.
// Read next: examples/cuda_lab/attention_merge/3_warp_per_row.cu.
#include "examples/cuda_lab/attention_merge/ladder.h"

namespace trireme::cuda::lab::attention_merge {

namespace {

__global__ void __launch_bounds__(kThreads) thread_per_row_kernel(const __grid_constant__ Problem p) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + static_cast<int>(threadIdx.x);
  if (row >= p.rows()) return;
  const std::int64_t place = lse_place(p, row), at = row * p.width;
  const Factors factors = factors_of(p.lse[place], p.part_lse[place]);
  for (int c = 0; c < p.width; ++c)
    p.out[at + c] = factors.kept * p.out[at + c] + factors.joined * to_float(p.part[at + c]);
  p.lse[place] = factors.lse;
}

}  // namespace

void thread_per_row(const Problem& p, Stream stream) {
  launch({"lab merge thread_per_row",
          {static_cast<unsigned>((p.rows() + kThreads - 1) / kThreads), 1, 1},
          {kThreads, 1, 1},
          0,
          stream},
         &thread_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::attention_merge
