// Rotary positions (Su et al., RoFormer, 2021): rotates every pair of a head's features by an angle that depends on the
// token's position. The gradient rotates back. Contract: rope of core/kernels.h, for float, bf16 and
// f16. Bytes per value of b bytes: 2 b. Sines and cosines, 4 Dh bytes per token, are made once per call, in f64: in f32
// an angle at position 100,000 is off by 0.004. All heads then read them from the cache. FLOPs: 6 per pair.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

template <class T>
struct Rope {
  std::int64_t batch, tokens, heads, head_dim;  ///< head_dim is even
  double base;
  bool inverse;
  const T* x;                           ///< [batch, tokens, heads, head_dim]
  const std::int32_t* positions;        ///< [tokens], or [batch, tokens]
  float* table;                         ///< workspace [2, positions, head_dim / 2]: cosines, then sines
  T* y;                                 ///< like x, may be x
  std::int64_t position_count = 0;      ///< batch * tokens: one position for each token of each sequence; 0: `tokens`
  const double* frequencies = nullptr;  ///< [head_dim / 2], in the place of powers of base
  bool interleaved = false;             ///< pairs are (x[2 i], x[2 i + 1]); else (x[i], x[i + head_dim / 2])
};

template <class T>
void rope(const Rope<T>& problem, Stream stream = nullptr);

}  // namespace trireme::cuda
