// Ring attention (Liu et al. 2023): causal attention over a sequence that is cut over the ranks of a group. Queries
// stay; keys and values go round the ring, so that every rank holds one other rank's at a time and never all of them.
//
// Rank r of n holds chunks r and 2 n - 1 - r of the sequence's 2 n ("zigzag", nn/positions.h). What it has to compute
// when it holds the keys of rank s:
//
//   s == r   all queries, all keys, causal: local order is sequence order
//   s <  r   all queries, the early half of the keys: the late half stands after every query here
//   s >  r   the late half of the queries, all keys: the early half of the queries stands before every key here
//
// The last two are the same number of pairs, none of them masked, so that no rank waits for another's triangle.
// Communication: (n - 1) blocks of keys and values forward; backward the same again, and n blocks of their gradients.
// Each message is under way while a block is computed: for the last one, which brings the gradients of its own keys
// home, a rank keeps what its early queries have to do with them. Read next: nn/context_attention.h (the choice between
// this and Ulysses), core/kernels.h (attention, attention_merge).
#pragma once

#include "core/tensor.h"
#include "parallel/comm/process_group.h"

namespace trireme::nn {

/// What a rank computes in one step of the ring: a run of its queries against a run of the keys that it holds then,
/// both counted in the tokens of their rank.
struct RingStep {
  int source;  ///< the rank whose keys these are
  std::int64_t first_query, queries;
  std::int64_t first_key, keys;
  bool causal;  ///< else every query sees every key
};
/// Step 0 to ranks - 1 of `rank`, where every rank has `local` tokens.
RingStep ring_step(int step, int rank, int ranks, std::int64_t local);

/// q [B, T/n, H, Dh], k, v [B, T/n, Hkv, Dh], H a multiple of Hkv, T/n even -> [B, T/n, H, Dh]. Collective over `ring`,
/// of n ranks. document_starts [B, T] i32, of the whole sequence in its order: where the document of each token begins,
/// before which it sees nothing; undefined: one document. scale 0 means 1 / sqrt(Dh).
///
/// The partial results are merged in f32 (f64 for f64), and so are the gradients, in an order that depends on n alone.
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, ProcessGroup& ring,
                      const Tensor& document_starts = {}, double scale = 0);

}  // namespace trireme::nn
