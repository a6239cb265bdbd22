// Level 1: a block is one thread, which adds its tile value by value.
//
// A warp has 32 lanes, and 31 of them are off. The thread asks for a sector of 32 bytes, waits, uses its sixteen
// values, and asks for the next: 256 waits one after the other, with at most 32 such threads on a multiprocessor. So 1
// KB is under way, but 25 KB are needed (4.8 TB/s for 0.7 us, over 132 multiprocessors).
// Read next: examples/cuda_lab/gradient_norm/2_interleaved.cu.
#include "examples/cuda_lab/gradient_norm/ladder.h"

namespace trireme::cuda::lab::gradient_norm {

namespace {

__global__ void __launch_bounds__(1) one_thread_kernel(const bf16* x, std::int64_t count, float* partials) {
  const Range tile = my_tile(count);
  float sum = 0;
  for (std::int64_t i = tile.begin; i < tile.end; ++i) sum += to_float(x[i]) * to_float(x[i]);
  partials[blockIdx.x] = sum;
}

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) add_partials_kernel(const float* partials, int count, double* result) {
  TRIREME_SHARED(float, scratch, 32);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partials[i];
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x == 0) *result = static_cast<double>(sum);
}

}  // namespace

void add_partials(const Problem& p, Stream stream) {
  int tiles = 0;
  for (const auto& tensor : p.tensors) tiles += tiles_of(tensor.count);
  launch({"lab add_partials", {1, 1, 1}, {kThreads, 1, 1}, 0, stream}, &add_partials_kernel, p.partials, tiles,
         p.result);
}

void one_thread(const Problem& p, Stream stream) { each_tensor("lab one_thread", p, 1, &one_thread_kernel, stream); }

}  // namespace trireme::cuda::lab::gradient_norm
