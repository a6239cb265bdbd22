// Level 3: a warp takes a head of a token, its lanes neighbouring values.
//
// A load of out is one line. All lanes read lse, and one of them writes it, after a sync_warp, when all lanes have read
// it.
//
// What is left is the overhead per head. Three divisions and some strides find its place; two exponentials,
// two quotients and a logarithm give its factors: about 180 instructions, the same in all lanes, for two
// values per lane. Loads of 16 bytes would leave half of the lanes idle and would not reduce the 180
// instructions.
// Read next: cuda/kernels/attention_merge.cu, the kernel in use, and examples/cuda_lab/attention_merge/4_shipped.cpp.
#include "examples/cuda_lab/attention_merge/ladder.h"

namespace trireme::cuda::lab::attention_merge {

namespace {

constexpr int kRows = kThreads / 32;

__global__ void __launch_bounds__(kThreads) warp_per_row_kernel(const __grid_constant__ Problem p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.rows()) return;  // uniform over the warp
  const std::int64_t place = lse_place(p, row), at = row * p.width;
  const Factors factors = factors_of(p.lse[place], p.part_lse[place]);
  for (int c = lane; c < p.width; c += 32)
    p.out[at + c] = factors.kept * p.out[at + c] + factors.joined * to_float(p.part[at + c]);
  sync_warp();
  if (lane == 0) p.lse[place] = factors.lse;
}

}  // namespace

void warp_per_row(const Problem& p, Stream stream) {
  launch({"lab merge warp_per_row",
          {static_cast<unsigned>((p.rows() + kRows - 1) / kRows), 1, 1},
          {kThreads, 1, 1},
          0,
          stream},
         &warp_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::attention_merge
