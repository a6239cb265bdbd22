// Level 3: one pair per thread. The two values of a pair share the angle, the divisions and the loads.
//
// This takes four loads and two stores for two values, where level 2 took eight and two, and half as many threads find
// their place. A thread reads both values before it writes them, so y may be x. Level 2 could not do that, because
// there threads read values that others write.
//
// What is left: loads of 2 bytes, and the divisions for each pair.
// Read next: cuda/kernels/rope.cu, the kernel in use, and examples/cuda_lab/rope/4_shipped.cpp on what it adds.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/rope/ladder.h"

namespace trireme::cuda::lab::rope {

namespace {

__global__ void __launch_bounds__(kThreads) pairs_kernel(const __grid_constant__ Problem p) {
  const std::int64_t half = p.head_dim / 2;
  const MyPiece mine = my_piece<1>(p.batch * p.tokens * p.heads * half);
  if (mine.count == 0) return;
  const std::int64_t head = mine.first / half, i = mine.first % half, token = head / p.heads % p.tokens;
  const std::int64_t low = head * p.head_dim + i, high = low + half;
  const float cosine = p.table[token * half + i], sine = p.table[(p.tokens + token) * half + i];
  const float u = to_float(p.x[low]), v = to_float(p.x[high]);
  p.y[low] = from_float<bf16>(u * cosine - v * sine);
  p.y[high] = from_float<bf16>(v * cosine + u * sine);
}

}  // namespace

void pairs(const Problem& p, Stream stream) {
  make_table(p, stream);
  launch({"lab pairs",
          grid_of_pieces(p.batch * p.tokens * p.heads * p.head_dim / 2, kThreads, 1),
          {kThreads, 1, 1},
          0,
          stream},
         &pairs_kernel, p);
}

}  // namespace trireme::cuda::lab::rope
