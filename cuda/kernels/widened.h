// Converts a value to the type of sums and arithmetic, and back: f64 for f64, f32 for everything else.
// Read next: cuda/kernels/reduce.cu.
#pragma once

#include <concepts>

#include "core/dtype.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

template <class T>
__device__ __forceinline__ accumulate_t<T> widened(T x) {
  if constexpr (std::same_as<T, double>)
    return x;
  else
    return to_float(x);
}

template <class T>
__device__ __forceinline__ T narrowed(accumulate_t<T> x) {
  if constexpr (std::same_as<T, double>)
    return x;
  else
    return from_float<T>(x);
}

}  // namespace trireme::cuda
