// Level 2: one product, over a batch in which every expert has as many rows as the largest.
//
// A batch of equal products is one launch, and all multiprocessors have tiles. For this, rows are copied into a tensor
// of [experts, rows of the largest, k], padded with zeros, and the results are copied back. This costs two copies,
// memory, and products with zeros, in proportion to how much the largest expert exceeds the average. If routers are
// balanced, and rows beyond a capacity are dropped, that is little. Here the largest has twice the average.
// Read next: cuda/kernels/gemm_grouped_sm80.cu, the kernel in use, and examples/cuda_lab/grouped/3_shipped.cpp on what
// it adds.
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/grouped/ladder.h"

namespace trireme::cuda::lab::grouped {

namespace {

constexpr int kThreads = 128;

/// Blocks [pieces of a row, rows of the largest, groups].
__global__ void __launch_bounds__(kThreads) pad_kernel(const bf16* x, const int* offsets, int width, bf16* to) {
  const MyPiece mine = my_piece<8>(width);
  if (mine.count == 0) return;
  const int begin = offsets[blockIdx.z], row = static_cast<int>(blockIdx.y);
  Pack<bf16, 8> piece = {};
  if (begin + row < offsets[blockIdx.z + 1])
    piece = load_piece<8>(x + std::int64_t{begin + row} * width + mine.first, mine.count);
  store_piece(to + (std::int64_t{blockIdx.z} * gridDim.y + row) * width + mine.first, piece, mine.count);
}

/// The other way round; rows that do not exist are left out.
__global__ void __launch_bounds__(kThreads) unpad_kernel(const bf16* from, const int* offsets, int width, bf16* y) {
  const MyPiece mine = my_piece<8>(width);
  const int begin = offsets[blockIdx.z], row = static_cast<int>(blockIdx.y);
  if (mine.count == 0 || begin + row >= offsets[blockIdx.z + 1]) return;
  const auto piece =
      load_piece<8>(from + (std::int64_t{blockIdx.z} * gridDim.y + row) * width + mine.first, mine.count);
  store_piece(y + std::int64_t{begin + row} * width + mine.first, piece, mine.count);
}

Dim3 rows_of_all(const Problem& p, int width) {
  Dim3 grid = grid_of_pieces(width, kThreads, 8);
  grid.y = static_cast<unsigned>(p.largest());
  grid.z = static_cast<unsigned>(p.groups);
  return grid;
}

}  // namespace

void padded(const Problem& p, Stream stream) {
  const int most = p.largest();
  launch({"lab pad", rows_of_all(p, p.k), {kThreads, 1, 1}, 0, stream}, &pad_kernel, p.x, p.offsets, p.k, p.padded_x);
  Gemm<bf16, bf16> product = {Form::nt, most, p.n, p.k, p.padded_x, p.k, p.w, p.k, p.padded_y, p.n};
  product.batch = p.groups;
  product.a_stride = std::int64_t{most} * p.k;
  product.b_stride = std::int64_t{p.n} * p.k;
  product.c_stride = std::int64_t{most} * p.n;
  gemm_sm80(product, stream);
  launch({"lab unpad", rows_of_all(p, p.n), {kThreads, 1, 1}, 0, stream}, &unpad_kernel, p.padded_y, p.offsets, p.n,
         p.y);
}

}  // namespace trireme::cuda::lab::grouped
