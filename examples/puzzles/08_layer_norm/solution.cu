// Puzzle 8: a solution.
#include "examples/puzzles/08_layer_norm/puzzle.h"

namespace trireme::puzzles::layer_norm {
namespace {

using cuda::shuffle_xor;

int first_lost() { return 1 << 12; }  // f32 has 24 bits: the neighbour of 2^24 is 2^24 + 2

double joined_squares(double count_a, double mean_a, double squares_a, double count_b, double mean_b,
                      double squares_b) {
  const double difference = mean_b - mean_a;
  return squares_a + squares_b + difference * difference * count_a * count_b / (count_a + count_b);
}

/// Of some numbers; squares: the sum of squared differences from their mean.
struct Moments {
  float count, mean, squares;
};

__device__ Moments join(Moments a, Moments b) {
  const float count = a.count + b.count;
  if (count == 0) return a;
  const float difference = b.mean - a.mean, share = b.count / count;
  return {count, a.mean + difference * share, a.squares + b.squares + difference * difference * a.count * share};
}

// Mean and squares come from one read, and no number is larger than it must be: squares has differences only.
__global__ void layer_norm(const float* x, const float* gamma, const float* beta, float* y, int rows, int columns) {
  const int lane = static_cast<int>(threadIdx.x), row = static_cast<int>(blockIdx.x * kRows + threadIdx.y);
  if (row >= rows) return;                                         // all lanes of the warp
  const float* const from = x + static_cast<long>(row) * columns;  // [columns]
  float* const to = y + static_cast<long>(row) * columns;          // [columns]
  Moments all = {0, 0, 0};
  for (int c = lane; c < columns; c += 32) all = join(all, {1, from[c], 0});
  for (int bits = 16; bits > 0; bits /= 2)
    all = join(all, {shuffle_xor(all.count, bits), shuffle_xor(all.mean, bits), shuffle_xor(all.squares, bits)});
  const float scale = cuda::reciprocal_sqrt(all.squares / all.count + kEps);
  for (int c = lane; c < columns; c += 32) to[c] = (from[c] - all.mean) * scale * gamma[c] + beta[c];
}

const Registered registered(answer("solution", {layer_norm, first_lost, joined_squares}));

}  // namespace
}  // namespace trireme::puzzles::layer_norm
