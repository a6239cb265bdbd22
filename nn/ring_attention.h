// Ring attention (Liu et al. 2023): causal attention over a sequence that is cut over the ranks of a group. Queries
// stay; keys and values go round the ring, so that a rank holds those of one other rank at a time, never all of them.
//
// Rank r of n holds chunks r and 2 n - 1 - r of the sequence's 2 n ("zigzag", nn/positions.h). What it has to compute
// when it holds the keys of rank s:
//
//   s == r   all queries, all keys, causal: local order is sequence order
//   s <  r   all queries, the early half of the keys: the late half stands after every query here
//   s >  r   the late half of the queries, all keys: the early half of the queries stands before every key here
//
// The last two have the same number of pairs, none of them masked, so that all ranks have the same work. Communication:
// (n - 1) blocks of keys and values forward; backward the same again, and n blocks of their gradients. Each message is
// under way while a block is computed. During the last message, which returns the gradients of a rank's own keys, the
// rank computes the block of its own keys and its early queries. Read next: nn/context_attention.h (the choice between
// this and Ulysses), core/kernels.h (attention, attention_merge).
#pragma once

#include "core/kernels.h"
#include "parallel/comm/process_group.h"

namespace trireme::nn {

/// What a rank computes in one step of the ring: a run of its queries against a run of the keys that it holds then,
/// both in local token numbers of the rank they come from.
struct RingStep {
  int source;  ///< the rank whose keys these are
  std::int64_t first_query, queries;
  std::int64_t first_key, keys;
  bool causal;  ///< else every query sees every key
};
/// Step 0 to ranks - 1 of `rank`, where every rank has `local` tokens.
RingStep ring_step(int step, int rank, int ranks, std::int64_t local);

/// q [B, T/n, H, Dh], k, v [B, T/n, Hkv, Dh], H a multiple of Hkv, T/n even -> [B, T/n, H, Dh]. Collective over `ring`,
/// of n ranks. document_starts [B, T] i32, of the whole sequence in its order: where each token's document, or its
/// window, begins; it sees no earlier token; undefined: one document. A block of which no query sees a key is not
/// computed; its keys still travel. rule: a scale of 0 means 1 / sqrt(Dh).
///
/// Partial results and gradients are summed in f32 (f64 for f64), in an order that depends on n alone.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, ProcessGroup& ring,
                      const Tensor& document_starts = {}, const ScoreRule& rule = 0);

}  // namespace trireme::nn
