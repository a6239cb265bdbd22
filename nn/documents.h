// Documents that share a sequence ("packed"): a token may only see tokens of its own document. A separator token, such
// as <|endoftext|>, ends a document and belongs to it; the next token begins another. Positions go on at a boundary,
// unless RunState::positions says otherwise. Attention is cut there, so rotary positions depend only on differences
// within a document; learned positions stay those of the sequence.
//
// Causal attention already hides later tokens, so one number per token is enough: where its document begins.
// Read next: nn/context_attention.h.
#pragma once

#include "nn/positions.h"

namespace trireme::nn {

/// ids [B, T] i32 -> [B, T] i32: the position at which each token's document begins in the sequence: 0 up to and
/// including the first separator.
Tensor document_starts(const Tensor& ids, std::int64_t separator);

/// starts [B, T] -> [B, T] i32: the position of each token in its document.
Tensor document_positions(const Tensor& starts);

/// A window: tokens first .. first + length of a sequence see only the last `window` tokens up to their own (Beltagy et
/// al. 2020, section 3.1). starts [B, length] of these tokens, or undefined: one document -> [B, length] i32, the first
/// token that each sees.
Tensor window_starts(const Tensor& starts, std::int64_t batch, std::int64_t first, std::int64_t length,
                     std::int64_t window);

/// starts [B, T], of a whole sequence -> [B, queries] i32: for each of `queries`, the local index of the first of
/// `keys` that it may see, which is the number of `keys` before its document. Both are runs in increasing order of
/// positions.
Tensor first_keys(const Tensor& starts, const PositionRuns& queries, const PositionRuns& keys);

}  // namespace trireme::nn
