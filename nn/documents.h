// Documents that share a sequence ("packed"): a token may only see tokens of its own document. A separator token, such
// as <|endoftext|>, ends a document and belongs to it; the next token begins another. Positions are not reset at a
// boundary. Attention is cut there, so rotary positions depend only on differences within a document; learned positions
// stay those of the sequence.
//
// Causal attention already hides later tokens, so one number per token is enough: where its document begins.
// Read next: nn/context_attention.h.
#pragma once

#include "nn/positions.h"

namespace trireme::nn {

/// ids [B, T] i32 -> [B, T] i32: the position at which each token's document begins in the sequence: 0 up to and
/// including the first separator.
Tensor document_starts(const Tensor& ids, std::int64_t separator);

/// starts [B, T], of a whole sequence -> [B, queries] i32: for each of `queries`, the local index of the first of
/// `keys` that it may see, which is the number of `keys` before its document. Both are runs in increasing order of
/// positions.
Tensor first_keys(const Tensor& starts, const PositionRuns& queries, const PositionRuns& keys);

}  // namespace trireme::nn
