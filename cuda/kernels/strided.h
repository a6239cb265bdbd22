// Views on the device: one shape, and the strides of each of K tensors. The host first merges
// neighbouring dims that all tensors step through evenly, so that a dense tensor has one dim and needs no
// division.
#pragma once

#include <array>

#include "core/cpu/strided.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

template <int K>
struct Strided {
  int dims;  ///< at least 1
  std::int64_t count;
  std::int64_t extent[Shape::max_dims];
  std::int64_t stride[K][Shape::max_dims];  ///< in elements; 0 repeats

  __host__ __device__ std::int64_t inner() const { return extent[dims - 1]; }
  __host__ __device__ std::int64_t inner_stride(int tensor) const { return stride[tensor][dims - 1]; }
};

/// Runs on the host. Each of `strides` has as many dims as `shape`.
template <int K>
Strided<K> strided(const Shape& shape, const std::array<Shape, K>& strides) {
  const cpu::Layout<K> merged = cpu::merge_dims<K>(shape, strides);
  Strided<K> result = {merged.dims, shape.count(), {}, {}};
  for (int dim = 0; dim < merged.dims; ++dim) {
    const auto d = static_cast<std::size_t>(dim);
    result.extent[dim] = merged.extent[d];
    for (std::size_t k = 0; k < K; ++k) result.stride[k][dim] = merged.stride[k][d];
  }
  return result;
}

template <int K>
struct Offsets {
  std::int64_t of[K];
};

/// The offset of element `index` (row-major) in each tensor. Divides in 32 bits if the count allows it: a 64-bit
/// division takes about four times as long.
template <int K>
__device__ __forceinline__ Offsets<K> offsets(const Strided<K>& view, std::int64_t index) {
  Offsets<K> result = {};
  for (int dim = view.dims - 1; dim > 0; --dim) {
    std::int64_t at = 0;
    if (view.count <= 0x7fffffff) {
      const auto i = static_cast<std::uint32_t>(index), extent = static_cast<std::uint32_t>(view.extent[dim]);
      index = i / extent;
      at = i % extent;
    } else {
      at = index % view.extent[dim];
      index /= view.extent[dim];
    }
    TRIREME_UNROLL
    for (int k = 0; k < K; ++k) result.of[k] += at * view.stride[k][dim];
  }
  TRIREME_UNROLL
  for (int k = 0; k < K; ++k) result.of[k] += index * view.stride[k][0];
  return result;
}

}  // namespace trireme::cuda
