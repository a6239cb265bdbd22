// Elements picked by an index along one dim, and the places that the index names, to which scatter_add adds. Contracts:
// gather and scatter_add of core/kernels.h, for float, bf16 and f16. Bytes per element of b bytes: 4 for the index, b
// read (a sector of 32 bytes, if the index is random), b written; places: 4 read and 4 written. scatter_add is places
// and then the gradient of an embedding with rows of one element, which adds in a fixed order (embedding.h).
#pragma once

#include <cstdint>

#include "cuda/device/device.h"
#include "cuda/kernels/strided.h"

namespace trireme::cuda {

/// Where the index points: element i of it stands beside element offset(i) of a tensor, whose stride along the dim
/// of the index is 0 in `view`; `stride` and `size` are those of that dim.
struct IndexedDim {
  Strided<1> view;
  std::int64_t stride, size;
};

/// y[i] = x[offset(i) + index[i] stride], or 0 if the index is not in 0 .. size - 1. index, y dense.
template <class T>
void gather(const T* x, const std::int32_t* index, T* y, const IndexedDim& dim, Stream stream = nullptr);

/// places[i] = offset(i) + index[i] stride, or -1 if the index is not in 0 .. size - 1. The results must be in i32.
void index_places(const std::int32_t* index, std::int32_t* places, const IndexedDim& dim, Stream stream = nullptr);

}  // namespace trireme::cuda
