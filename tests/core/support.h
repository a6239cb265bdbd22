// What the kernel tests share: element access that goes through no kernel, and comparisons that name the first element
// that differs. References are plain loops in f64.
// Read next: tests/support/tensors.h, which makes tensors of random numbers.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/kernels.h"
#include "core/parallel_for.h"
#include "core/tensor.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

inline constexpr DType floating_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                       DType::i64, DType::i32, DType::u8};

/// The dtype sums over x are kept in.
inline DType acc_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Bound on the relative error of one rounding to dtype, with room for a few in f32 and f64.
double rounding(DType dtype);

/// Elements of any view in row-major order, and the reverse: both follow the strides element by element.
std::vector<double> values(const Tensor& x);
void assign(Tensor& x, const std::vector<double>& elements);

/// Fails naming the first element off by more than rtol * |expected| + atol (f16: plus its absolute rounding near 0).
void check_close(const Tensor& got, const std::vector<double>& expected, double rtol, double atol);

/// Runs `compute` with teams of 1, 2 and 3 threads and checks that the bytes of its result never change.
void check_same_for_any_threads(const std::function<Tensor()>& compute);

}  // namespace trireme::testing
