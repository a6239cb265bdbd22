// Levels 4 and 5: the kernels in use. Over level 3, cuda/kernels/attention_backward_sm80.cu has
//   all seven products on the tensor cores; p and ds go from the sums of two products into the operands of the next
//     without leaving registers, which is why the kernel of keys computes them transposed;
//   copies of the next tile under the products of this one;
//   exponentials in base 2; grouped heads, head dims up to 128, documents, the gradient of lse.
// Over that, the kernels of cuda/kernels/attention_backward_sm90.cu have
//   128 keys, or 192 queries, that share what passes; a warp group that copies while the others compute (TMA);
//   products that read shared memory by themselves (wgmma), each operand once for 64 rows instead of once for 16;
//   blocks that take tile after tile, and copy the next tile's tokens while they store this one's results.
// This file also has the cost of each level.
// Read next: docs/ladder.md.
#include <algorithm>
#include <array>
#include <cmath>

#include "cuda/kernels/attention.h"
#include "examples/cuda_lab/attention_backward/ladder.h"
#include "examples/cuda_lab/gemm/ladder.h"

namespace trireme::cuda::lab::attention_backward {

namespace {

/// Heads become batch entries of one head: [heads, tokens, 1, 64].
AttentionBackward<bf16> general(const Problem& p) {
  return {.forward = {.batch = p.heads,
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
                      .lse = p.lse},
          .dout = p.dout,
          .dout_pitch = kHeadDim,
          .dlse = nullptr,
          .dq = p.dq,
          .dq_pitch = kHeadDim,
          .dk = p.dk,
          .dv = p.dv,
          .dkv_pitch = kHeadDim,
          .delta = p.delta,
          .first_tile = nullptr};
}

}  // namespace

void shipped_sm80(const Problem& p, Stream stream) { attention_backward_sm80(general(p), stream); }
void shipped_sm90(const Problem& p, Stream stream) { attention_backward_sm90(general(p), stream); }

namespace {

constexpr double kToken = 128;  // bytes of a token of q, k, v, ...

/// Tokens of the other side that a block of `stay` tokens processes on average, in whole steps.
double others(const Problem& p, double stay, double step) {
  const double all = std::ceil(p.tokens / step) * step, blocks = std::ceil(p.tokens / stay);
  if (!p.causal) return all;
  double sum = 0;
  for (int block = 1; block <= static_cast<int>(blocks); ++block) sum += std::min(block * stay, all);
  return sum / blocks;
}
double all_tokens(const Problem& p) { return static_cast<double>(p.heads) * p.tokens; }

/// One of two tiled kernels: blocks of `stay` tokens, and the work of each for `step` streamed tokens. Memory traffic:
/// `tokens` of 128 bytes for each token, and lse and delta; all other reads come from L2.
struct Tiles {
  double stay, step, resident, tokens;
  double waits;  ///< a step's, for L2
};
MemoryCost tiles_cost(const Problem& p, const Tiles& t, const Cost& each) {
  const double blocks = p.heads * std::ceil(p.tokens / t.stay), steps = others(p, t.stay, t.step) / t.step;
  return cost_of({.blocks = blocks,
                  .resident = t.resident,
                  .bytes = all_tokens(p) * (t.tokens * kToken + 8),
                  .waits = 2 + t.waits * steps,
                  .barriers = 2 * steps,
                  .wavefronts = 0,
                  .products = steps * clocks(each).slowest()});
}
/// rowsum(dout out) before them: eight tokens per block.
MemoryCost delta_cost(const Problem& p) {
  return cost_of({.blocks = std::ceil(all_tokens(p) / 8),
                  .resident = 16,
                  .bytes = all_tokens(p) * (2 * kToken + 4),
                  .waits = 1,
                  .barriers = 0,
                  .wavefronts = 8 * 2});
}

MemoryCost materialised_cost(const Problem& p) {
  const double tokens = p.tokens, seen = others(p, 1, 1), matrix = 4 * all_tokens(p) * tokens;
  // Of 32 keys and a product: 64 times a broadcast and 32 lines. What a block writes and reads again lies in L2.
  const double turns = std::ceil(seen / 128);
  return cost_of({.blocks = all_tokens(p),
                  .resident = 16,
                  .bytes = 2 * matrix + 4 * kToken * all_tokens(p),
                  .waits = 2 * 4 * kWaitForL2 * turns,
                  .barriers = 6,
                  .wavefronts = seen / 32 * (2 * 64 * 33 + 9)}) +
         // Down the columns: two warps, two broadcasts and two loads for each query.
         cost_of({.blocks = all_tokens(p),
                  .resident = 32,
                  .bytes = 2 * matrix + 4 * kToken * all_tokens(p),
                  .waits = kWaitForL2 * unrolled(tokens),
                  .barriers = 0,
                  .wavefronts = 2 * 4 * tokens}) +
         cost_of({.blocks = all_tokens(p),
                  .resident = 32,
                  .bytes = matrix + 2 * kToken * all_tokens(p),
                  .waits = kWaitForL2 * unrolled(tokens),
                  .barriers = 0,
                  .wavefronts = 2 * 2 * tokens});
}

/// A pair of query and key: two loads of a line; and ten exchanges, which take the same path.
MemoryCost recomputed_cost(const Problem& p) {
  const double blocks = p.heads * std::ceil(p.tokens / 4.0), seen = others(p, 1, 1);
  return cost_of(
             {blocks, 16, all_tokens(p) * (6 * kToken + 8), 2 + kWaitForL2 * unrolled(seen), 0, 4 * seen * (2 + 10)}) +
         cost_of(
             {blocks, 16, all_tokens(p) * (6 * kToken + 8), 1 + kWaitForL2 * unrolled(seen), 0, 4 * seen * (4 + 10)});
}

/// A tile of a by b tokens is multiplied `products` times.
double flops(double products, double a, double b) { return products * 2 * a * b * kHeadDim; }

// Wavefronts of a step, for each warp. Two threads a token: half of a token is four loads of 16 bytes, at two
// addresses. Keys: q and dout twice each, lse, delta, and two exchanges, for 32 queries; queries: k twice, v once, and
// two exchanges. Tensor cores on Ampere, by ldmatrix.x4 of four wavefronts: a product of rows [16, 64] takes its own
// fragment and four of the 64 streamed tokens, four times; a weighted sum takes 16 of the streamed ones. The kernel of
// keys also reads log2_sum, delta and the visible range for 16 columns. wgmma, 128 bytes per wavefront: each group of
// 64 rows reads 64 x 16 of both operands for each 16 of K, or of what passes alone. Its four warps read log2_sum and
// delta, too, in pairs.
constexpr double kRowsProduct = 4 * (1 + 4) * 4, kWeightedSum = 16 * 4;
constexpr double kRowsProduct90 = 4 * 2 * 16, kWeightedSum90 = 4 * 16;
constexpr double kStepBytes = 2 * 64 * kToken;
constexpr Unit kTensor = Unit::tensor_core;

MemoryCost tiled_cost(const Problem& p) {
  const Cost queries = {Unit::fma, flops(3, 64, 32), 4 * 32 * (12 + 2), kStepBytes / 2};
  const Cost keys = {Unit::fma, flops(4, 64, 32), 4 * 32 * (16 + 2 + 2), kStepBytes / 2};
  return tiles_cost(p, {64, 32, 3, 6, kWaitForL2}, queries) + tiles_cost(p, {64, 32, 2, 6, kWaitForL2}, keys);
}
MemoryCost sm80_cost(const Problem& p) {
  const Cost keys = {kTensor, flops(4, 64, 64), 4 * (2 * kRowsProduct + 2 * kWeightedSum + 3 * 16), kStepBytes};
  const Cost queries = {kTensor, flops(3, 64, 64), 4 * (2 * kRowsProduct + kWeightedSum), kStepBytes};
  return delta_cost(p) + tiles_cost(p, {64, 64, 2, 6, 0}, keys) + tiles_cost(p, {64, 64, 2, 5, 0}, queries);
}
MemoryCost sm90_cost(const Problem& p) {
  const Cost keys = {kTensor, flops(4, 128, 64), 2 * (2 * kRowsProduct90 + 2 * kWeightedSum90 + 4 * 2 * 8), kStepBytes};
  const Cost queries = {kTensor, flops(3, 192, 64), 3 * (2 * kRowsProduct90 + kWeightedSum90), kStepBytes};
  return delta_cost(p) + tiles_cost(p, {128, 64, 1, 6, 0}, keys) + tiles_cost(p, {192, 64, 1, 5, 0}, queries);
}

constexpr std::array all = {
    MemoryLevel<Problem>{"materialised", "p and ds in memory", &materialised, &materialised_cost},
    MemoryLevel<Problem>{"recomputed", "p again from the log-sum-exp", &recomputed, &recomputed_cost},
    MemoryLevel<Problem>{"tiled", "64 tokens share what passes", &tiled, &tiled_cost},
    MemoryLevel<Problem>{"backward_sm80", "tensor cores, copies under products", &shipped_sm80, &sm80_cost},
    MemoryLevel<Problem>{"backward_sm90", "128 or 192 tokens, TMA, wgmma", &shipped_sm90, &sm90_cost},
};

}  // namespace

std::span<const MemoryLevel<Problem>> levels() { return all; }

}  // namespace trireme::cuda::lab::attention_backward
