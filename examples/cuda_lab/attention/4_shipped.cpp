// Levels 4 and 5: the kernels in use. Over level 3, cuda/kernels/attention_sm80.cu has
//   both products on the tensor cores; the weights go from the first product's accumulators into the second's operand
//     without leaving registers, because the two fragments have the same layout;
//   copies of the next keys and values under the products of the current ones;
//   exponentials in base 2, with the scale folded into one multiplication;
//   the log of each sum, which the backward pass and ring attention need; grouped heads; head dims up to 128.
// Over that, cuda/kernels/attention_sm90.cu has
//   192 queries that share keys and values instead of 64, in three groups of four warps (wgmma reads shared memory
//   itself); a thread that copies whole tiles (TMA) while the others compute;
//   the products of one tile under the softmax of the next.
// Read next: docs/ladder.md.
#include <array>

#include "cuda/kernels/attention.h"
#include "examples/cuda_lab/attention/ladder.h"

namespace trireme::cuda::lab::attention {

namespace {

/// Heads become batch entries of one head: [heads, tokens, 1, 64]. The sums' logarithms are not used here.
AttentionForward<bf16> general(const Problem& p) {
  return {.batch = p.heads,
          .heads = 1,
          .kv_heads = 1,
          .head_dim = kHeadDim,
          .queries = p.tokens,
          .keys = p.tokens,
          .causal = p.causal,
          .scale = p.scale,
          .q = p.q,
          .q_pitch = kHeadDim,
          .k = p.k,
          .v = p.v,
          .kv_pitch = kHeadDim,
          .out = p.out,
          .out_pitch = kHeadDim,
          .lse = p.scores};
}

}  // namespace

void shipped_sm80(const Problem& p, Stream stream) { attention_forward_sm80(general(p), stream); }
void shipped_sm90(const Problem& p, Stream stream) { attention_forward_sm90(general(p), stream); }

namespace {

constexpr std::array all = {
    Level<Problem>{"materialised", "one kernel a step, scores in memory", 76.22, &materialised},
    Level<Problem>{"one_pass", "running softmax, no scores in memory", 15.97, &one_pass},
    Level<Problem>{"tiled", "64 queries share keys and values", 5.545, &tiled},
    Level<Problem>{"attention_sm80", "tensor cores, copies under products", 0.4324, &shipped_sm80},
    Level<Problem>{"attention_sm90", "192 queries, TMA, wgmma, taking turns", 0.1588, &shipped_sm90},
};

}  // namespace

std::span<const Level<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::attention
