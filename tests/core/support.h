// Shared by the kernel tests: comparisons that name the first element that differs, and bounds on rounding errors.
// References are plain loops in f64.
// Read next: tests/support/elements.h, which reads elements; tests/support/tensors.h, which makes tensors.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <vector>

#include "core/kernels.h"
#include "core/tensor.h"
#include "tests/support/elements.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

inline const KernelTable& table = kernels(Device::cpu);

inline constexpr DType floating_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
inline constexpr DType all_dtypes[] = {DType::f64, DType::f32, DType::bf16, DType::f16,
                                       DType::i64, DType::i32, DType::u8};

/// The dtype in which sums over elements of `dtype` are kept.
inline DType acc_of(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// Bound on the relative error of one rounding to dtype, with room for a few in f32 and f64.
double rounding(DType dtype);

/// Fails naming the first element off by more than rtol * |expected| + atol (f16: plus its absolute rounding near 0).
void check_close(const Tensor& got, const std::vector<double>& expected, double rtol, double atol);

/// Runs `compute` with teams of 1, 2 and 3 threads and checks that the bytes of its result never change.
void check_same_for_any_threads(const std::function<Tensor()>& compute);

}  // namespace trireme::testing
