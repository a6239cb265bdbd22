// Level 3: a warp takes a row, and each lane keeps its values in registers.
//
// Lanes of a warp exchange registers with shuffles, without barriers or shared memory; a block's eight rows
// proceed independently. A lane's values are an array of 32, for rows of up to 1024. The compiler knows all its
// indices, which is required to keep an array in registers. All 32 loads are under way before the first value is
// used.
//
// What is left: 32 loads of 2 bytes, each with a check that its column exists, and as many stores.
// Read next: cuda/kernels/softmax.cu, the kernel in use, and examples/cuda_lab/softmax/4_shipped.cpp on what it adds.
#include <cmath>

#include "core/error.h"
#include "examples/cuda_lab/softmax/ladder.h"

namespace trireme::cuda::lab::softmax {

namespace {

constexpr int kValues = kMostInRegisters / 32, kRows = kThreads / 32;

__global__ void __launch_bounds__(kThreads) warp_per_row_kernel(const __grid_constant__ Problem p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.rows) return;  // uniform over the warp
  const std::int64_t at = row * p.width + lane;
  float values[kValues], top = Max::kNeutral, sum = 0;
  TRIREME_UNROLL
  for (int i = 0; i < kValues; ++i) {
    values[i] = 32 * i + lane < p.width ? to_float(p.x[at + 32 * i]) : -INFINITY;
    top = fmaxf(top, values[i]);
  }
  top = reduce_warp<Max>(top);
  TRIREME_UNROLL
  for (float& value : values) {
    value = expf(value - top);
    sum += value;
  }
  const float scale = 1.0F / reduce_warp<Sum>(sum);
  TRIREME_UNROLL
  for (int i = 0; i < kValues; ++i)
    if (32 * i + lane < p.width) p.y[at + 32 * i] = from_float<bf16>(values[i] * scale);
}

}  // namespace

void warp_per_row(const Problem& p, Stream stream) {
  require(p.width <= kMostInRegisters, "lab softmax", "rows have {} columns; expected at most {}; take another level",
          p.width, kMostInRegisters);
  launch({"lab warp_per_row", {static_cast<unsigned>((p.rows + kRows - 1) / kRows), 1, 1}, {kThreads, 1, 1}, 0, stream},
         &warp_per_row_kernel, p);
}

}  // namespace trireme::cuda::lab::softmax
