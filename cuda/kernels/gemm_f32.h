// The matrix product in f32: c = alpha a b + beta c + bias, with products and sums in f32 on the ordinary arithmetic
// units, because tensor cores would round the operands. Used by f32 runs, to be comparable with the CPU. Work: 2 M N K
// FLOPs; 4 (M K + K N) bytes read and 4 M N written at least once. A block that computes a tile of 128 x 128 reads 4
// (128 + 128) K bytes for 2 128 128 K FLOPs: 32 FLOPs a byte from L2. Each sum runs over K in order.
// Read next: cuda/kernels/gemm_f32.cu.
#pragma once

#include "cuda/kernels/gemm.h"

namespace trireme::cuda {

/// a [M, K], b [K, N], c [M, N], row-major, with pitches in elements; `form` says which is stored transposed. Any sizes
/// and alignments; where accesses of 16 bytes are not possible, loads and stores move single values.
struct GemmF32 {
  Form form;
  int m, n, k;
  const float* a;
  std::int64_t a_pitch;
  const float* b;
  std::int64_t b_pitch;
  float* c;
  std::int64_t c_pitch;
  float alpha = 1, beta = 0;    ///< beta 0 ignores the content of c, even NaN
  const float* bias = nullptr;  ///< [N]
  int batch = 1;                ///< products of one shape, this far apart; a and b may be 0 apart. At most 65535.
  std::int64_t a_stride = 0, b_stride = 0, c_stride = 0;
};

void gemm_f32(const GemmF32& product, Stream stream = nullptr);

}  // namespace trireme::cuda
