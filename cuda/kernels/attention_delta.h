// Prepares every backward of attention: computes a number for each query and a number for each tile of queries.
// Read next: cuda/kernels/attention_backward_sm80.cu.
#pragma once

#include "cuda/kernels/attention.h"

namespace trireme::cuda {

/// Fills delta = rowsum(dout out) - dlse; and, if first_key is given, first_tile: the smallest first key of every 64
/// queries. Reads out and dout once: 4 D bytes for 2 D FLOPs a row.
template <class T>
void attention_delta(const AttentionBackward<T>& attention, Stream stream = nullptr);

}  // namespace trireme::cuda
