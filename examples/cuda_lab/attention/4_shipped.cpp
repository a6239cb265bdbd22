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
// This file also counts what each level moves.
// Read next: docs/ladder.md.
#include <array>

#include "cuda/kernels/attention.h"
#include "examples/cuda_lab/attention/ladder.h"

namespace trireme::cuda::lab {

namespace {

/// Heads become batch entries of one head: [heads, tokens, 1, 64]. The sums' logarithms are not used here.
AttentionForward<bf16> general(const Attention& p) {
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

void shipped_attention_sm80(const Attention& p, Stream stream) { attention_forward_sm80(general(p), stream); }
void shipped_attention_sm90(const Attention& p, Stream stream) { attention_forward_sm90(general(p), stream); }

namespace {

// q, k, v and out are 128 bytes per token each.
constexpr std::array levels = {
    // Each query reads k and v by itself; L1 helps little, since a block is one query.
    AttentionLevel{"materialised", "one kernel a step, scores in memory", &materialised,
                   [](double t) { return 16 * t * t + 2 * 128 * t * t + 2 * 128 * t; }},
    // Four queries of a block go through the keys side by side.
    AttentionLevel{"one_pass", "running softmax, no scores in memory", &one_pass,
                   [](double t) { return 2 * 128 * t * t / 4 + 2 * 128 * t; }},
    AttentionLevel{"tiled", "64 queries share keys and values", &tiled,
                   [](double t) { return 2 * 128 * t * t / 64 + 2 * 128 * t; }},
    AttentionLevel{"attention_sm80", "tensor cores, copies under products", &shipped_attention_sm80,
                   [](double t) { return 2 * 128 * t * t / 64 + 2 * 128 * t; }},
    AttentionLevel{"attention_sm90", "192 queries, TMA, wgmma, taking turns", &shipped_attention_sm90,
                   [](double t) { return 2 * 128 * t * t / 192 + 2 * 128 * t; }},
};

}  // namespace

std::span<const AttentionLevel> attention_levels() { return levels; }

}  // namespace trireme::cuda::lab
