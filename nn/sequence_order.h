// Chunks of a sequence, from the order in which ranks hold them to the order they stand in, and back. Pieces gathered
// over cp come in rank order, 0, 2n-1, 1, 2n-2, ... for n ranks in zigzag (nn/positions.h).
#pragma once

#include "parallel/mesh/mesh.h"

namespace trireme::nn {

/// What this rank holds of x [B, T, ..], of whole sequences -> [B, T/cp, ..], the same on all its tp ranks; off the
/// tape.
Tensor local_tokens(const Tensor& x, const DeviceMesh& mesh);

/// x [B, T, ..] as a gather over `cp` ranks gives it -> the same with its tokens in the order of the sequence.
Tensor to_sequence_order(const Tensor& x, int cp);
/// The inverse: what a scatter over `cp` ranks needs.
Tensor to_rank_order(const Tensor& x, int cp);

}  // namespace trireme::nn
