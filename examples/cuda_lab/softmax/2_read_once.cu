// Level 2: one kernel, and the row stays in shared memory, in f32.
//
// This takes 4 bytes per value, the minimum, and one exponential: the second pass replaces x by exp(x - max). A thread
// later reads only the columns that it wrote itself, so the only barriers are those of maximum and sum: two each, at
// which 256 threads wait for the slowest. In a row of 1024 a thread has four values between two barriers.
// Read next: examples/cuda_lab/softmax/3_warp_per_row.cu.
#include <cmath>

#include "examples/cuda_lab/softmax/ladder.h"

namespace trireme::cuda::lab::softmax {

namespace {

__global__ void __launch_bounds__(kThreads) read_once_kernel(const __grid_constant__ Problem p) {
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 32);
  float* const row = reinterpret_cast<float*>(memory);  // [width]
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const int thread = static_cast<int>(threadIdx.x);
  float top = Max::kNeutral, sum = 0;
  for (int c = thread; c < p.width; c += kThreads) {
    row[c] = to_float(p.x[at + c]);
    top = fmaxf(top, row[c]);
  }
  top = reduce_block<Max>(top, scratch);
  for (int c = thread; c < p.width; c += kThreads) sum += row[c] = expf(row[c] - top);
  const float scale = 1.0F / reduce_block<Sum>(sum, scratch);
  for (int c = thread; c < p.width; c += kThreads) p.y[at + c] = from_float<bf16>(row[c] * scale);
}

}  // namespace

void read_once(const Problem& p, Stream stream) {
  launch({"lab read_once",
          {static_cast<unsigned>(p.rows), 1, 1},
          {kThreads, 1, 1},
          static_cast<std::size_t>(p.width) * sizeof(float),
          stream},
         &read_once_kernel, p);
}

}  // namespace trireme::cuda::lab::softmax
