// Fill, and copies between any dtypes and strides: casts, transposes, slices, concatenation (a copy into a slice of the
// result), materialised broadcasts. Contracts: fill and copy of core/kernels.h. Bytes per element: fill writes its
// size; copy reads the size of one dtype and writes that of the other. If source and result are contiguous along
// different dims, the copy goes through shared memory in tiles, so that both sides move whole cache lines.
#pragma once

#include "core/dtype.h"
#include "cuda/kernels/strided.h"

namespace trireme::cuda {

/// y = value, converted to `dtype`. view: y's strides.
void fill(void* y, DType dtype, double value, const Strided<1>& view, Stream stream = nullptr);

/// y = x, converted. view: the strides of x, then those of y. No overlap.
void copy(const void* x, DType from, void* y, DType to, const Strided<2>& view, Stream stream = nullptr);

}  // namespace trireme::cuda
