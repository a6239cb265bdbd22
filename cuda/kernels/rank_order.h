// Combines the ranks' contributions to a sum or maximum in the order of the rows: y[i] = x[0][i] + x[1][i] + ...; with
// the same bits as parallel/comm/rank_order.h on the host. bf16 and f16 accumulate in f32 and are rounded once;
// integers wrap; a maximum propagates NaN, and keeps the first of equal values.
// Bytes: rows x count read once, count written once. One FLOP per element read.
#pragma once

#include "core/kernels.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

/// x [rows, count] dense, y [count], both of `dtype`; y may be one of x's rows. At least one row.
void combine_in_order(DType dtype, Reduction op, const void* x, int rows, std::int64_t count, void* y,
                      Stream stream = nullptr);

}  // namespace trireme::cuda
