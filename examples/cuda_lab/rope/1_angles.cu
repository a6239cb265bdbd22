// Level 1: one value per thread, which computes its angle from the formula.
//
// At position 100,000 an angle in f32 would be off by 0.004, so it is computed in f64: a power, a cosine and a
// sine, some hundreds of instructions for each value, at half the rate of f32 on an H200. The same angle is
// computed twice for each pair of values, again for each head of a token, and again for each sequence of the
// batch.
// Read next: examples/cuda_lab/rope/2_table.cu.
#include <cmath>

#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/rope/ladder.h"

namespace trireme::cuda::lab::rope {

namespace {

__global__ void __launch_bounds__(kThreads) angles_kernel(const __grid_constant__ Problem p) {
  const MyPiece mine = my_piece<1>(p.batch * p.tokens * p.heads * p.head_dim);
  if (mine.count == 0) return;
  const std::int64_t half = p.head_dim / 2, at = mine.first % p.head_dim, i = at % half;
  const std::int64_t token = mine.first / p.head_dim / p.heads % p.tokens;
  const double frequency = pow(p.base, -static_cast<double>(i) / static_cast<double>(half));
  const double angle = static_cast<double>(p.positions[token]) * frequency;
  const auto cosine = static_cast<float>(cos(angle)), sine = static_cast<float>(sin(angle));
  const bool low = at < half;
  const float x = to_float(p.x[mine.first]), other = to_float(p.x[low ? mine.first + half : mine.first - half]);
  p.y[mine.first] = from_float<bf16>(x * cosine + (low ? -other : other) * sine);
}

}  // namespace

void angles(const Problem& p, Stream stream) {
  launch({"lab angles",
          grid_of_pieces(p.batch * p.tokens * p.heads * p.head_dim, kThreads, 1),
          {kThreads, 1, 1},
          0,
          stream},
         &angles_kernel, p);
}

}  // namespace trireme::cuda::lab::rope
