// Level 1: a launch for each expert, of the product in use (cuda/kernels/gemm_sm80.cu).
//
// This needs no new kernel, and no product wastes work. But the host must know how many rows each expert got, so it
// waits for the router while the device is idle (the forecast omits this). And launches on a stream run one after
// another: an expert with 512 rows has 16 tiles of 128 x 128, for 132 multiprocessors. gemm_sm80 therefore uses 64
// tiles of 64 x 64, which need twice the bytes from L2 for the same product, and still leave half of the
// multiprocessors idle.
// Read next: examples/cuda_lab/grouped/2_padded.cu.
#include "cuda/kernels/gemm.h"
#include "examples/cuda_lab/grouped/ladder.h"

namespace trireme::cuda::lab::grouped {

void launch_an_expert(const Problem& p, Stream stream) {
  for (int g = 0; g < p.groups; ++g) {
    const std::int64_t first = p.starts[static_cast<std::size_t>(g)], matrix = std::int64_t{p.n} * p.k;
    gemm_sm80(Gemm<bf16, bf16>{Form::nt, p.rows_of(g), p.n, p.k, p.x + first * p.k, p.k, p.w + g * matrix, p.k,
                               p.y + first * p.n, p.n},
              stream);
  }
}

}  // namespace trireme::cuda::lab::grouped
