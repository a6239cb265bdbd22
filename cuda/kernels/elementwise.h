// Elementwise arithmetic: the unary functions and their derivatives (GELU exact and by tanh, SiLU and the others of
// Unary), broadcasting arithmetic (a residual addition is its dense case), where, a x + b y (scaling is b = 0), and
// SwiGLU. Contracts: unary, unary_backward, binary, where, axpby, swiglu and swiglu_backward of core/kernels.h, for
// float, bf16 and f16, with arithmetic in f32; binary, where and axpby for f64 too, with arithmetic in f64. Bytes per
// element of b bytes: unary 2 b; unary_backward 3 b; binary 3 b and where 4 b, less where an operand is broadcast;
// axpby x and y read, y written; swiglu
// 3 b per output, backward 5 b. FLOPs: one, or about ten for an exponential or erfc.
#pragma once

#include "core/dtype.h"
#include "core/kernels.h"
#include "cuda/kernels/strided.h"

namespace trireme::cuda {

/// y = op(x); y may be x.
template <class T>
void unary(Unary op, const T* x, T* y, std::int64_t count, Stream stream = nullptr);

/// dx = op'(x) dy; dx may be dy.
template <class T>
void unary_backward(Unary op, const T* x, const T* dy, T* dx, std::int64_t count, Stream stream = nullptr);

/// y = op(a, b). view: y's shape, and the strides of a and b through it. y is dense, and may be the same as a dense
/// operand.
template <class T>
void binary(Binary op, const T* a, const T* b, T* y, const Strided<2>& view, Stream stream = nullptr);

/// y = mask != 0 ? a : b. view: y's shape, and the strides of mask, a and b through it. y is dense.
template <class T>
void where(const T* mask, const T* a, const T* b, T* y, const Strided<3>& view, Stream stream = nullptr);

/// y = p x + q y; q = 0 ignores the content of y. Any two floating types.
template <class X, class Y>
void axpby(accumulate_t<Y> p, const X* x, accumulate_t<Y> q, Y* y, std::int64_t count, Stream stream = nullptr);

/// x = factor x; with a factor of 1, nothing of x is read or written. factor: one f32.
template <class T>
void multiply_by(const float* factor, T* x, std::int64_t count, Stream stream = nullptr);

/// y [rows, width] = silu(gate) up; x [rows, 2 width] holds [gate, up] (Shazeer, GLU Variants Improve Transformer,
/// 2020).
template <class T>
void swiglu(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream = nullptr);

/// dx [rows, 2 width]; dx may be x.
template <class T>
void swiglu_backward(const T* x, const T* dy, T* dx, std::int64_t rows, std::int64_t width, Stream stream = nullptr);

}  // namespace trireme::cuda
