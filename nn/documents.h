// Documents that share a sequence ("packed"): a token may only see tokens of its own document. A separator token, such
// as <|endoftext|>, ends a document and belongs to it; the next token begins another. Positions are not reset at a
// boundary: with attention cut there, only differences within a document matter to rotary positions, and learned ones
// stay those of the sequence.
//
// Causal attention already hides what comes later, so one number a token says it all: where its document begins.
// Read next: nn/context_attention.h.
#pragma once

#include "nn/positions.h"

namespace trireme::nn {

/// ids [B, T] i32 -> [B, T] i32: the position of the first token of each token's document, as far as the sequence holds
/// it: 0 before the first separator.
Tensor document_starts(const Tensor& ids, std::int64_t separator);

/// starts [B, T], of a whole sequence. -> [B, queries] i32: how many of `keys`, in their local order, stand before the
/// document of each of `queries`: the first key it may see. Both are runs in increasing order of positions.
Tensor first_keys(const Tensor& starts, const PositionRuns& queries, const PositionRuns& keys);

}  // namespace trireme::nn
