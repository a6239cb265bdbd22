// Rotary positions (Su et al., RoFormer, 2021): rotates every pair (x[i], x[i + Dh/2]) of a head by an angle that
// depends on the token's position. The gradient rotates back. Contract: rope of core/kernels.h, for float, bf16 and
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
  const T* x;                     ///< [batch, tokens, heads, head_dim]
  const std::int32_t* positions;  ///< [tokens]
  float* table;                   ///< workspace [2, tokens, head_dim / 2]: cosines, then sines
  T* y;                           ///< like x, may be x
};

template <class T>
void rope(const Rope<T>& problem, Stream stream = nullptr);

}  // namespace trireme::cuda
