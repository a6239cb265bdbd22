// What the products do to a sum before it is stored; see cuda/kernels/gemm.h.
// Read next: cuda/kernels/gemm_store.h, which does it.
#pragma once

#include <type_traits>

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

/// What an epilogue does to a sum after the bias. A warp branches on it once for a window: a branch for each value
/// would take more instructions than the values themselves.
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

/// Which epilogues a kernel has. Tiles of 128 x 192 leave few registers, so their epilogues are unrolled, and each
/// kernel has one of them: see epilogues_of in gemm_store.h.
enum class Epilogues : std::uint8_t { all, simple, gelu_tanh, gelu, gelu_tanh_derivative, gelu_derivative };

constexpr Finish finish_of(Epilogues epilogues) {
  switch (epilogues) {
    case Epilogues::gelu_tanh:
      return Finish::gelu_tanh;
    case Epilogues::gelu:
      return Finish::gelu;
    case Epilogues::gelu_tanh_derivative:
      return Finish::gelu_tanh_derivative;
    case Epilogues::gelu_derivative:
      return Finish::gelu_derivative;
    default:
      return Finish::none;
  }
}
/// Activations have one form each: a linear layer is nt, and the gradient of its inputs nn.
constexpr bool activates(Epilogues epilogues) {
  return epilogues == Epilogues::gelu_tanh || epilogues == Epilogues::gelu;
}
constexpr bool differentiates(Epilogues epilogues) {
  return epilogues == Epilogues::gelu_tanh_derivative || epilogues == Epilogues::gelu_derivative;
}

/// activation(x), or x activation'(before), for a value that is rounded to T.
template <Finish finish, class T>
__device__ __forceinline__ float finished(float x, float before) {
  if constexpr (finish == Finish::gelu_tanh) return value_of<Unary::gelu_tanh, T>(x);
  if constexpr (finish == Finish::gelu) return value_of<Unary::gelu, T>(x);
  if constexpr (finish == Finish::silu) return value_of<Unary::silu, T>(x);
  if constexpr (finish == Finish::gelu_tanh_derivative) return x * derivative_of<Unary::gelu_tanh, T>(before);
  if constexpr (finish == Finish::gelu_derivative) return x * derivative_of<Unary::gelu, T>(before);
  if constexpr (finish == Finish::silu_derivative) return x * derivative_of<Unary::silu, T>(before);
  return x;
}

/// Where a tile's product lies in c, and its own limits and bias.
template <class T>
struct Place {
  std::int64_t offset;  ///< of its c, and of tensors laid out like c
  int m_end;            ///< rows from here on are not stored
  const T* bias;        ///< [N], or null
};

/// True if c, residual and pre_activation consist of whole pieces of 16 bytes: eight values of 16 bits.
template <class T, class Out>
__host__ __device__ __forceinline__ bool rows_allow_vectors(const Gemm<T, Out>& p) {
  const auto aligned = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; };
  return p.c_pitch % 8 == 0 && p.c_stride % 8 == 0 && aligned(p.c) && aligned(p.epilogue.residual) &&
         aligned(p.epilogue.pre_activation);
}

/// Orders tiles so that a wave of blocks reads little: super-rows `height` tiles high, column by column.
struct TileOrder {
  int row, column;
  __device__ TileOrder(int index, int rows, int columns, int height = 8) {
    const int group = index / (height * columns), inside = index % (height * columns);
    const int here = rows - group * height < height ? rows - group * height : height;
    row = group * height + inside % here;
    column = inside / here;
  }
  /// The index of a tile: the inverse.
  static __device__ int index_of(int row, int column, int rows, int columns, int height = 8) {
    const int first = row / height * height, here = rows - first < height ? rows - first : height;
    return first * columns + column * here + row - first;
  }
};

}  // namespace trireme::cuda
