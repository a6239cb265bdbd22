// Level 3: a block goes through its row twice, in one launch.
//
// Between the two reads of a row, only the rows of concurrent blocks are read, not all others: 264 blocks of 1024
// threads hold 27 MB of logits, and L2 has 50. So the second read comes from L2, and each logit is read from memory
// once and written once: 4 bytes. A warp's load is still 64 bytes, and in the second pass, where each load is followed
// by a store to the same row, a thread waits for each of its 50.
// Read next: cuda/kernels/cross_entropy.cu, the kernel in use; examples/cuda_lab/cross_entropy/4_shipped.cpp on what it
// adds.
#include "examples/cuda_lab/cross_entropy/ladder.h"

namespace trireme::cuda::lab::cross_entropy {

namespace {

constexpr int kThreads = 1024;

__global__ void __launch_bounds__(kThreads) one_launch_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(float, scratch, 32);
  const int r = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  bf16* const row = p.gradients + std::int64_t{r} * p.rows.columns;
  float maximum = Max::kNeutral, sum = 0;
  for (int c = thread; c < p.rows.valid; c += kThreads) {
    const float logit = to_float(row[c]), before = maximum;
    maximum = Max::join(maximum, logit);
    sum = sum * expf(before - maximum) + expf(logit - maximum);
  }
  const float row_maximum = reduce_block<Max>(maximum, scratch);
  const float row_sum = reduce_block<Sum>(sum * expf(maximum - row_maximum), scratch);
  if (thread == 0) {
    p.rows.maximum[r] = row_maximum;
    p.rows.sum_exp[r] = row_sum;
    p.losses[r] = loss_of(p, r, row_maximum, row_sum);
  }
  sync_threads();  // the target's logit has been read
  for (int c = thread; c < p.rows.columns; c += kThreads)
    row[c] = from_float<bf16>(gradient_of(p, r, c, to_float(row[c]), row_maximum, row_sum));
}

}  // namespace

void one_launch(const Problem& p, Stream stream) {
  launch({"lab one_launch", {static_cast<unsigned>(p.rows.rows), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &one_launch_kernel, p);
}

}  // namespace trireme::cuda::lab::cross_entropy
