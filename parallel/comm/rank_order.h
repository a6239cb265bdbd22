// The one place on the host where ranks' values are combined: in rank order, in the accumulation type, rounded once.
// The groups of threads and MPI call it, so a sum has the same bits under both, on every rank and in every run;
// cuda/kernels/rank_order.h gives the same bits on a GPU.
#pragma once

#include <cstdint>
#include <span>

#include "parallel/comm/process_group.h"

namespace trireme::comm {

/// Elements [begin, end) of every destination = the elementwise reduction of the same elements of the sources, taken in
/// order. bf16 and f16 accumulate in f32; integers wrap; max propagates NaN. A destination may be one of the sources.
void combine(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
             std::span<std::byte* const> destinations, std::int64_t begin, std::int64_t end);

/// Does nothing if `to` and `from` are equal.
void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes);

}  // namespace trireme::comm
