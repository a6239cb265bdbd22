// Sums and maxima over any dims of any view, and the sum of squares of many tensors. Contracts: reduce and sum_squares
// of core/kernels.h; f64, float, bf16 and f16; sums in f64 for f64, in f32 for the others (sum_squares always in f64).
// Bytes: each element of x read once; the results of parts, at most one f32 for 64 elements, written and read once. One
// FLOP each. The order of sums depends only on shapes: the same bits on every run.
#pragma once

#include <span>

#include "core/dtype.h"
#include "core/kernels.h"
#include "cuda/kernels/strided.h"

namespace trireme::cuda {

/// How a reduction is split. Made on the host from x's shape and strides and y's shape (1 where x is reduced).
struct ReducePlan {
  Strided<1> kept, reduced;  ///< the dims of x that stay, and those that are reduced
  std::int64_t parts;        ///< each output's elements are split into this many parts, joined in order
  bool by_columns;           ///< neighbouring outputs are neighbours in x: threads take outputs, not elements
  bool by_matrix = false;    ///< by columns, of a matrix: rows follow each other at one distance
  std::int64_t workspace() const { return parts > 1 ? parts * kept.count : 0; }  ///< accumulators
};
ReducePlan reduce_plan(const Shape& x, const Shape& x_strides, const Shape& y);

/// y = op over the reduced dims; y dense, T or accumulate_t<T>. `partials` [plan.workspace()] may be null when that is
/// 0. NaN propagates; no elements give 0 or -infinity.
template <class T, class Y>
void reduce(Reduction op, const T* x, Y* y, const ReducePlan& plan, accumulate_t<T>* partials, Stream stream = nullptr);

/// A tensor whose squares are added: f64, f32, bf16 or f16.
struct SquaresOf {
  const void* data;
  std::int64_t count;
  DType dtype;
};
constexpr int kSquaresTile = 16384;       ///< elements a block adds
constexpr int kSquaresMostTensors = 128;  ///< per launch; more tensors take another launch
std::int64_t squares_partials(std::span<const SquaresOf> xs);

/// result[0] = sum of x^2 over all; `partials` [squares_partials(xs)] is workspace. No elements give 0.
void sum_squares(std::span<const SquaresOf> xs, double* partials, double* result, Stream stream = nullptr);

}  // namespace trireme::cuda
