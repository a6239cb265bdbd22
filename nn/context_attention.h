// Causal attention over a sequence that is cut over cp, by one of two methods:
//
//   ring     keys and values go round the ranks (nn/ring_attention.h). Any number of heads.
//   ulysses  two all-to-alls (Jacobs et al. 2023, DeepSpeed-Ulysses): before attention each rank sends away most heads
//            and gets the whole sequence for the others, after it the reverse: S(1) -> S(2) and S(2) -> S(1) on cp. The
//            heads of a tp rank, and its kv heads, must divide by cp.
//
// Both take tokens in the same layout, the zigzag of nn/positions.h, so that batches are always cut in the same way.
// Ulysses does not need it for balance; it puts the chunks in order after the first all-to-all and back before the
// second. Ulysses moves a sequence 4 times (q, k, v, out; each rank sends (n - 1) / n of what it has). The ring moves
// keys and values n - 1 times, hidden behind the computation. Read next: nn/attention.h.
#pragma once

#include "nn/build.h"

namespace trireme::nn {

/// q [B, T/cp, H, Dh], k, v [B, T/cp, Hkv, Dh], all heads of this tp rank -> [B, T/cp, H, Dh]. With cp = 1 plain
/// attention. document_starts [B, T] as in nn/ring_attention.h, or undefined; rule: a scale of 0 means 1 / sqrt(Dh).
/// Collective over cp.
Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v, const DeviceMesh& mesh,
                         ContextParallel method, const Tensor& document_starts, const ScoreRule& rule = 0);

}  // namespace trireme::nn
