// Level 2: a block owns a row of dweight, and looks through all ids for the tokens that belong to it.
//
// The question changes from "where does my token go" to "which tokens are mine". Only one block writes the row, so no
// atomics are needed, and the block adds in the order of the tokens: the same bits on every run, and those of the CPU.
// The cost is the search: 50,257 blocks read 64 KB of ids each, 3.3 GB from L2, although over two thirds of the rows
// have no token in a batch. Each thread checks an id; the block stops only for those of its row.
// Read next: examples/cuda_lab/embedding/3_sorted.cu.
#include "examples/cuda_lab/embedding/ladder.h"

namespace trireme::cuda::lab::embedding {

namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

__global__ void __launch_bounds__(kThreads) block_per_row_kernel(const __grid_constant__ Problem p) {
  TRIREME_SHARED(std::uint32_t, found, kWarps);  // which lanes of each warp have a token of this row
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  float* const to = p.dweight + std::int64_t{row} * p.width;
  for (int base = 0; base < p.tokens; base += kThreads) {
    const std::uint32_t mine = ballot(base + thread < p.tokens && p.ids[base + thread] == row);
    if (thread % 32 == 0) found[thread / 32] = mine;
    sync_threads();
    for (int warp = 0; warp < kWarps; ++warp)
      for (int lane = 0; lane < 32 && found[warp] >> lane != 0; ++lane) {
        if ((found[warp] >> lane & 1) == 0) continue;
        const std::int64_t token = base + 32 * warp + lane;
        for (int c = thread; c < p.width; c += kThreads) to[c] += to_float(p.dy[token * p.width + c]);
      }
    sync_threads();
  }
}

}  // namespace

void block_per_row(const Problem& p, Stream stream) {
  launch({"lab block_per_row", {static_cast<unsigned>(p.vocabulary), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &block_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::embedding
