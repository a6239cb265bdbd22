// Reorders the chunks of a sequence from the order of the ranks that hold them to the order of the sequence, and back.
// Pieces gathered over cp come in rank order, 0, 2n-1, 1, 2n-2, ... for n ranks in zigzag (nn/positions.h).
// Read next: nn/context_attention.cpp.
#pragma once

#include "parallel/mesh/mesh.h"

namespace trireme::nn {

/// x [B, T, ..], of whole sequences -> [B, T/cp, ..], the tokens that this rank holds, the same on all its tp ranks;
/// off the tape.
Tensor local_tokens(const Tensor& x, const DeviceMesh& mesh);

/// x [B, T, ..] as a gather over `cp` ranks gives it -> the same with its tokens in the order of the sequence.
Tensor to_sequence_order(const Tensor& x, int cp);
/// The inverse: what a scatter over `cp` ranks needs.
Tensor to_rank_order(const Tensor& x, int cp);

}  // namespace trireme::nn
