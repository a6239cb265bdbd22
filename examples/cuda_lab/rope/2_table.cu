// Level 2: the cosines and sines are computed once, into a table; a thread takes a value and reads its entry.
//
// 1024 positions with 32 frequencies are 32,768 angles, where level 1 computed 12.6 million. The table is 262 KB, so it
// is read from L2, or from L1 if the heads of a token share it. It costs one more launch.
//
// What is left is small but occurs 12.6 million times: three divisions, to find head, token and place, and four loads
// for one value.
// Read next: examples/cuda_lab/rope/3_pairs.cu.
#include <cmath>

#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/rope/ladder.h"

namespace trireme::cuda::lab::rope {

namespace {

__global__ void __launch_bounds__(kThreads) make_table_kernel(const __grid_constant__ Problem p) {
  const std::int64_t half = p.head_dim / 2;
  const MyPiece mine = my_piece<1>(p.tokens * half);
  if (mine.count == 0) return;
  const std::int64_t token = mine.first / half, i = mine.first % half;
  const double frequency = pow(p.base, -static_cast<double>(i) / static_cast<double>(half));
  const double angle = static_cast<double>(p.positions[token]) * frequency;
  p.table[mine.first] = static_cast<float>(cos(angle));
  p.table[p.tokens * half + mine.first] = static_cast<float>(sin(angle));
}

__global__ void __launch_bounds__(kThreads) table_kernel(const __grid_constant__ Problem p) {
  const MyPiece mine = my_piece<1>(p.batch * p.tokens * p.heads * p.head_dim);
  if (mine.count == 0) return;
  const std::int64_t half = p.head_dim / 2, at = mine.first % p.head_dim, i = at % half;
  const std::int64_t token = mine.first / p.head_dim / p.heads % p.tokens;
  const float cosine = p.table[token * half + i], sine = p.table[(p.tokens + token) * half + i];
  const bool low = at < half;
  const float x = to_float(p.x[mine.first]), other = to_float(p.x[low ? mine.first + half : mine.first - half]);
  p.y[mine.first] = from_float<bf16>(x * cosine + (low ? -other : other) * sine);
}

}  // namespace

void make_table(const Problem& p, Stream stream) {
  launch({"lab make_table", grid_of_pieces(p.tokens * p.head_dim / 2, kThreads, 1), {kThreads, 1, 1}, 0, stream},
         &make_table_kernel, p);
}

void table(const Problem& p, Stream stream) {
  make_table(p, stream);
  launch({"lab table",
          grid_of_pieces(p.batch * p.tokens * p.heads * p.head_dim, kThreads, 1),
          {kThreads, 1, 1},
          0,
          stream},
         &table_kernel, p);
}

}  // namespace trireme::cuda::lab::rope
