// What the products do to a sum before it is stored; see cuda/kernels/gemm.h.
#pragma once

#include "core/error.h"
#include "cuda/kernels/functions.h"
#include "cuda/kernels/gemm.h"

namespace trireme::cuda {

/// Throws for contradictory epilogues.
template <class T, class Out>
void check_epilogue(const char* where, const Gemm<T, Out>& p) {
  if (p.epilogue.derivative && p.epilogue.pre_activation == nullptr)
    fail(ExitCode::usage, where, "an epilogue with derivative has no pre_activation; expected [{}, {}]; {}", p.m, p.n,
         "give what the forward product stored there");
}

template <Unary op>
__device__ __forceinline__ float activate(const bool derivative, float x, float before) {
  return derivative ? x * derivative_of<op>(before) : value_of<op>(x);
}

/// activation(x), or x activation'(before).
__device__ __forceinline__ float activate(Activation activation, bool derivative, float x, float before) {
  if (activation == Activation::gelu_tanh) return activate<Unary::gelu_tanh>(derivative, x, before);
  if (activation == Activation::gelu) return activate<Unary::gelu>(derivative, x, before);
  return activation == Activation::silu ? activate<Unary::silu>(derivative, x, before) : x;
}

/// Where a tile's product lies in c, and its own limits and bias.
template <class T>
struct Place {
  std::int64_t offset;  ///< of its c, and of tensors laid out like c
  int m_end;            ///< rows from here on are not stored
  const T* bias;        ///< [N], or null
};

/// Finishes and stores `Width` neighbours of row `row` from column `column` on. `vectors`: c, residual and
/// pre_activation allow accesses of Width elements there; bias is always read one by one, from L1.
template <int Width, class T, class Out>
__device__ __forceinline__ void store_row_piece(const Gemm<T, Out>& p, const Place<T>& place, const float* sums,
                                                int row, int column, bool vectors) {
  const Epilogue<T>& e = p.epilogue;  // the bias is taken from the place
  const std::int64_t at = place.offset + row * p.c_pitch + column;
  if (!vectors || column + Width > p.n) {
    for (int i = 0; i < Width && column + i < p.n; ++i) {
      float x = e.alpha * sums[i] + (place.bias != nullptr ? to_float(place.bias[column + i]) : 0.0F);
      const float before = e.derivative ? to_float(e.pre_activation[at + i]) : 0.0F;
      if (e.pre_activation != nullptr && !e.derivative) {
        e.pre_activation[at + i] = from_float<T>(x);
        x = to_float(e.pre_activation[at + i]);
      }
      x = activate(e.activation, e.derivative, x, before);
      if (e.residual != nullptr) x += to_float(e.residual[at + i]);
      if (e.accumulate) x += to_float(p.c[at + i]);
      p.c[at + i] = from_float<Out>(x);
    }
    return;
  }
  float x[Width];
  TRIREME_UNROLL
  for (int i = 0; i < Width; ++i)
    x[i] = e.alpha * sums[i] + (place.bias != nullptr ? to_float(place.bias[column + i]) : 0.0F);
  Pack<T, Width> before = {};
  if (e.derivative) {
    before = load_vector<Pack<T, Width>>(e.pre_activation + at);
  } else if (e.pre_activation != nullptr) {
    TRIREME_UNROLL
    for (int i = 0; i < Width; ++i) {
      before.values[i] = from_float<T>(x[i]);
      x[i] = to_float(before.values[i]);
    }
    store_vector(e.pre_activation + at, before);
  }
  TRIREME_UNROLL
  for (int i = 0; i < Width; ++i) x[i] = activate(e.activation, e.derivative, x[i], to_float(before.values[i]));
  if (e.residual != nullptr) {
    const auto residual = load_vector<Pack<T, Width>>(e.residual + at);
    TRIREME_UNROLL
    for (int i = 0; i < Width; ++i) x[i] += to_float(residual.values[i]);
  }
  if (e.accumulate) {
    const auto old = load_vector<Pack<Out, Width>>(p.c + at);
    TRIREME_UNROLL
    for (int i = 0; i < Width; ++i) x[i] += to_float(old.values[i]);
  }
  Pack<Out, Width> out;
  TRIREME_UNROLL
  for (int i = 0; i < Width; ++i) out.values[i] = from_float<Out>(x[i]);
  store_vector(p.c + at, out);
}

/// True if rows of c, residual and pre_activation can be accessed by Width elements at a time.
template <int Width, class T, class Out>
__device__ __forceinline__ bool rows_allow_vectors(const Gemm<T, Out>& p) {
  const auto bad = [](const void* pointer, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes != 0;  // null is fine
  };
  return p.c_pitch % Width == 0 && p.c_stride % Width == 0 && !bad(p.c, Width * sizeof(Out)) &&
         !bad(p.epilogue.residual, Width * sizeof(T)) && !bad(p.epilogue.pre_activation, Width * sizeof(T));
}

/// Orders tiles so that a wave of blocks reads little: super-rows eight tiles high, column by column.
struct TileOrder {
  int row, column;
  __device__ TileOrder(int index, int rows, int columns) {
    constexpr int kHeight = 8;
    const int group = index / (kHeight * columns), inside = index % (kHeight * columns);
    const int height = rows - group * kHeight < kHeight ? rows - group * kHeight : kHeight;
    row = group * kHeight + inside % height;
    column = inside / height;
  }
};

}  // namespace trireme::cuda
