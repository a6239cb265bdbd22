// What the products do to a sum before it is stored; see cuda/kernels/gemm.h.
#pragma once

#include <type_traits>

#include "core/error.h"
#include "cuda/kernels/functions.h"
#include "cuda/kernels/gemm.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

/// Throws for contradictory epilogues.
template <class T, class Out>
void check_epilogue(const char* where, const Gemm<T, Out>& p) {
  if (p.epilogue.derivative && p.epilogue.pre_activation == nullptr)
    fail(ExitCode::usage, where, "an epilogue with derivative has no pre_activation; expected [{}, {}]; {}", p.m, p.n,
         "give what the forward product stored there");
}

/// What an epilogue does to a sum after the bias. A warp branches on it once for its rows: a branch for each value would
/// take more instructions than the values themselves.
enum class Finish : std::uint8_t {
  none,
  gelu_tanh,
  gelu,
  silu,
  gelu_tanh_derivative,
  gelu_derivative,
  silu_derivative,
};

__device__ __forceinline__ Finish finish_of(Activation activation, bool derivative) {
  if (activation == Activation::none) return Finish::none;
  const int distance = derivative ? static_cast<int>(Finish::silu) : 0;  // from an activation to its derivative
  return static_cast<Finish>(static_cast<int>(activation) + distance);
}
static_assert(static_cast<int>(Finish::silu) == static_cast<int>(Activation::silu));

/// f(std::integral_constant<Finish, finish>).
template <class F>
__device__ __forceinline__ void visit(Finish finish, F f) {
  switch (finish) {
    case Finish::none:
      return f(std::integral_constant<Finish, Finish::none>());
    case Finish::gelu_tanh:
      return f(std::integral_constant<Finish, Finish::gelu_tanh>());
    case Finish::gelu:
      return f(std::integral_constant<Finish, Finish::gelu>());
    case Finish::silu:
      return f(std::integral_constant<Finish, Finish::silu>());
    case Finish::gelu_tanh_derivative:
      return f(std::integral_constant<Finish, Finish::gelu_tanh_derivative>());
    case Finish::gelu_derivative:
      return f(std::integral_constant<Finish, Finish::gelu_derivative>());
    case Finish::silu_derivative:
      return f(std::integral_constant<Finish, Finish::silu_derivative>());
  }
}

/// activation(x), or x activation'(before).
template <Finish finish>
__device__ __forceinline__ float finished(float x, float before) {
  if constexpr (finish == Finish::gelu_tanh) return value_of<Unary::gelu_tanh>(x);
  if constexpr (finish == Finish::gelu) return value_of<Unary::gelu>(x);
  if constexpr (finish == Finish::silu) return value_of<Unary::silu>(x);
  if constexpr (finish == Finish::gelu_tanh_derivative) return x * derivative_of<Unary::gelu_tanh>(before);
  if constexpr (finish == Finish::gelu_derivative) return x * derivative_of<Unary::gelu>(before);
  if constexpr (finish == Finish::silu_derivative) return x * derivative_of<Unary::silu>(before);
  return x;
}

/// Where a tile's product lies in c, and its own limits and bias.
template <class T>
struct Place {
  std::int64_t offset;  ///< of its c, and of tensors laid out like c
  int m_end;            ///< rows from here on are not stored
  const T* bias;        ///< [N], or null
};

/// Finishes and stores `count` neighbours at any address, one by one.
template <class T, class Out>
__device__ __forceinline__ void store_few(const Gemm<T, Out>& p, const float* sums, const T* bias, std::int64_t at,
                                          int count) {
  const Epilogue<T>& e = p.epilogue;
  TRIREME_NO_UNROLL
  for (int i = 0; i < count; ++i) {
    float x = e.alpha * sums[i] + (bias != nullptr ? to_float(bias[i]) : 0.0F);
    const float before = e.derivative ? to_float(e.pre_activation[at + i]) : 0.0F;
    if (e.pre_activation != nullptr && !e.derivative) {
      e.pre_activation[at + i] = from_float<T>(x);
      x = to_float(e.pre_activation[at + i]);
    }
    visit(finish_of(e.activation, e.derivative), [&](auto finish) { x = finished<finish.value>(x, before); });
    if (e.residual != nullptr) x += to_float(e.residual[at + i]);
    if (e.accumulate) x += to_float(p.c[at + i]);
    p.c[at + i] = from_float<Out>(x);
  }
}

/// Four neighbours.
template <class T>
using Four = Packed<T, 4>;

/// The fours of `Rows` rows `step` elements apart, of which `count` exist. All are requested before the first is needed.
template <class T, int Rows>
__device__ __forceinline__ void load_fours(const T* from, std::int64_t step, int count, Four<T> (&fours)[Rows]) {
  TRIREME_UNROLL
  for (int r = 0; r < Rows; ++r, from += step)
    if (r < count) fours[r] = load_vector<Four<T>>(from);
}
template <class T, int Rows>
__device__ __forceinline__ void add_fours(const Four<T> (&fours)[Rows], float (&x)[Rows][4]) {
  TRIREME_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) x[r][i] += unpacked<T, 4>(fours[r], i);
  }
}
template <class T, int Rows>
__device__ __forceinline__ void store_fours(T* to, std::int64_t step, int count, const Four<T> (&fours)[Rows]) {
  TRIREME_UNROLL
  for (int r = 0; r < Rows; ++r, to += step)
    if (r < count) store_vector(to, fours[r]);
}

/// Finishes and stores four neighbours in each of `Rows` rows `step` elements apart, of which `count` exist. x: the sums
/// with the bias. Branches are around all rows, not around each.
template <Finish finish, class T, class Out, int Rows>
__device__ __forceinline__ void finish_fours(const Gemm<T, Out>& p, std::int64_t at, std::int64_t step, int count,
                                             float (&x)[Rows][4]) {
  const Epilogue<T>& e = p.epilogue;
  constexpr bool kDerivative = finish > Finish::silu;
  Four<T> before[Rows] = {}, residual[Rows] = {};
  Four<Out> stored[Rows] = {};
  if constexpr (kDerivative) load_fours(e.pre_activation + at, step, count, before);
  if (e.residual != nullptr) load_fours(e.residual + at, step, count, residual);
  if (e.accumulate) load_fours(p.c + at, step, count, stored);
  if (!kDerivative && e.pre_activation != nullptr) {
    TRIREME_UNROLL
    for (int r = 0; r < Rows; ++r) before[r] = packed<T>(x[r]);
    store_fours(e.pre_activation + at, step, count, before);
    TRIREME_UNROLL
    for (int r = 0; r < Rows; ++r) {
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) x[r][i] = unpacked<T, 4>(before[r], i);
    }
  }
  TRIREME_UNROLL
  for (int r = 0; r < Rows; ++r) {
    TRIREME_UNROLL
    for (int i = 0; i < 4; ++i) x[r][i] = finished<finish>(x[r][i], unpacked<T, 4>(before[r], i));
  }
  if (e.residual != nullptr) add_fours<T>(residual, x);
  if (e.accumulate) add_fours<Out>(stored, x);
  TRIREME_UNROLL
  for (int r = 0; r < Rows; ++r) stored[r] = packed<Out>(x[r]);
  store_fours(p.c + at, step, count, stored);
}

/// Finishes and stores the 16 rows of `Columns` sums in a warp's slab, from `row` and `column` of the product on. A lane
/// keeps its four columns, and so its bias; it requests the rows of `AtOnce` together. `vectors`: rows_allow_vectors<4>(p).
template <int Columns, int Pitch, int AtOnce, class T, class Out>
__device__ __forceinline__ void store_slab(const Gemm<T, Out>& p, const Place<T>& place, const float* slab, int row,
                                           int column, bool vectors) {
  constexpr int kLanes = Columns / 4, kStep = 32 / kLanes, kRows = 16 / kStep;  // lanes of a row; rows of a lane
  const int lane = static_cast<int>(threadIdx.x % 32), c = lane % kLanes * 4, first = lane / kLanes;
  const int columns = p.n - column - c;                              // that exist, from the first of this lane
  const int rows = (place.m_end - row - first + kStep - 1) / kStep;  // of this lane that exist
  if (columns <= 0) return;
  const float* const from = slab + first * Pitch + c;
  const std::int64_t at = place.offset + (row + first) * p.c_pitch + column + c, step = kStep * p.c_pitch;
  const T* const bias = place.bias == nullptr ? nullptr : place.bias + column + c;
  if (!vectors || columns < 4) {
    TRIREME_NO_UNROLL
    for (int r = 0; r < kRows && r < rows; ++r)
      store_few(p, from + r * kStep * Pitch, bias, at + r * step, columns < 4 ? columns : 4);
    return;
  }
  float added[4];
  TRIREME_UNROLL
  for (int i = 0; i < 4; ++i) added[i] = bias != nullptr ? to_float(bias[i]) : 0.0F;
  visit(finish_of(p.epilogue.activation, p.epilogue.derivative), [&](auto finish) {
    TRIREME_NO_UNROLL
    for (int r = 0; r < kRows; r += AtOnce) {
      float x[AtOnce][4];
      TRIREME_UNROLL
      for (int i = 0; i < AtOnce; ++i) {
        const auto sums = load_vector<Pack<float, 4>>(from + (r + i) * kStep * Pitch);
        TRIREME_UNROLL
        for (int j = 0; j < 4; ++j) x[i][j] = p.epilogue.alpha * sums.values[j] + added[j];
      }
      finish_fours<finish.value>(p, at + r * step, step, rows - r, x);
    }
  });
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
