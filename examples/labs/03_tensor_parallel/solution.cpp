// Lab 3: a solution. In the framework the all-reduces are two moves between placements (parallel/mesh/redistribute.h),
// which nn/linear.cpp makes for both layers; the loss is nn/cross_entropy.cpp.
#include "examples/labs/03_tensor_parallel/solution.h"

namespace trireme::labs::tensor_parallel::solution {

// A block is an attention and an MLP. Each sums its output in forward, and the gradient of its input in backward.
int all_reduces_forward(int blocks) { return 2 * blocks; }
int all_reduces_backward(int blocks) { return 2 * blocks; }

// Both all-reduces are of [tokens, width]: the hidden units never leave their rank.
std::int64_t mlp_bytes(int tp, std::int64_t tokens, std::int64_t width, std::int64_t /*hidden*/) {
  return 2 * (2 * (tp - 1) * (tokens * width / tp) * 4);
}

// For each token the maximum, the sum of exponentials and the target's logit.
std::int64_t loss_bytes(int tp, std::int64_t tokens, std::int64_t /*vocabulary*/) {
  return 3 * (2 * (tp - 1) * (tokens / tp) * 4);
}

Forward<MlpKept> mlp_forward(Rank& rank, const Mlp& part, const Tensor& x) {
  const Tensor before = linear(x, part.up, part.up_bias);  // [B, T, F/tp]
  const Tensor hidden = gelu(before);                      // [B, T, F/tp]
  const Tensor y = linear(hidden, part.down, {});          // [B, T, D], a term of the sum over all hidden units
  rank.all_reduce(y);
  return {y + part.down_bias, {x, before, hidden}};  // after the sum, so that the bias counts once
}

Backward<Mlp> mlp_backward(Rank& rank, const Mlp& part, const MlpKept& kept, const Tensor& dy) {
  // Every rank has all of dy, so nothing need be sent before it has the gradients of its own hidden units.
  const Tensor dhidden = matmul(dy, part.down);                // [B, T, F/tp]
  const Tensor dbefore = gelu_backward(dhidden, kept.before);  // [B, T, F/tp]
  const Tensor dx = matmul(dbefore, part.up);  // [B, T, D], a term: the other ranks' hidden units use x, too
  rank.all_reduce(dx);
  return {
      dx,
      {weight_gradient(dbefore, kept.x), bias_gradient(dbefore), weight_gradient(dy, kept.hidden), bias_gradient(dy)}};
}

Forward<AttentionKept> attention_forward(Rank& rank, const Attention& part, const Tensor& x) {
  const Tensor q = linear(x, part.q, {}), k = linear(x, part.k, {}), v = linear(x, part.v, {});  // [B, T, D/tp]
  const Tensor mixed = mix(q, k, v, part.head_width);                                            // [B, T, D/tp]
  const Tensor y = linear(mixed, part.out, {});  // [B, T, D], a term of the sum over all heads
  rank.all_reduce(y);
  return {y + part.out_bias, {x, q, k, v, mixed}};
}

Backward<Attention> attention_backward(Rank& rank, const Attention& part, const AttentionKept& kept, const Tensor& dy) {
  const Tensor dmixed = matmul(dy, part.out);                                               // [B, T, D/tp]
  const auto [dq, dk, dv] = mix_backward(kept.q, kept.k, kept.v, dmixed, part.head_width);  // [B, T, D/tp]
  const Tensor dx = matmul(dq, part.q) + matmul(dk, part.k) + matmul(dv, part.v);           // [B, T, D], a term
  rank.all_reduce(dx);  // once: the three terms were added before
  return {dx,
          {weight_gradient(dq, kept.x), weight_gradient(dk, kept.x), weight_gradient(dv, kept.x),
           weight_gradient(dy, kept.mixed), bias_gradient(dy), part.head_width}};
}

Loss cross_entropy(Rank& rank, const Tensor& logits, const Tensor& targets, std::int64_t vocabulary) {
  const std::int64_t tokens = logits.size(0), own = logits.size(1);
  const std::int64_t first = rank.rank() * ((vocabulary + rank.size() - 1) / rank.size());
  // In `target` and `dlogits`, for a token whose target is one of this rank's columns.
  const auto for_own_targets = [&](auto&& body) {
    for (std::int64_t n = 0; n < tokens; ++n)
      if (const std::int64_t column = targets.data<std::int32_t>()[n] - first; column >= 0 && column < own)
        body(n, column);
  };

  const Tensor largest = max(logits, 1, /*keep_dim=*/true);  // [N, 1]
  rank.all_reduce_max(largest);                              // of all ranks, so that their exponentials can be added
  const Tensor shifted = logits - largest, exponentials = exp(shifted);  // [N, V/tp]

  Tensor sums = Tensor::zeros({2, tokens});  // of exponentials, and the target's logit: in one all-reduce
  Tensor denominator = view::select(sums, 0, 0), target = view::select(sums, 0, 1);  // [N]
  copy(sum(exponentials, 1), denominator);
  for_own_targets([&](auto n, auto column) { target.data<float>()[n] = shifted.data<float>()[n * own + column]; });
  rank.all_reduce(sums);

  Tensor dlogits = exponentials / unsqueeze(denominator, 1);  // [N, V/tp]
  for_own_targets([&](auto n, auto column) { dlogits.data<float>()[n * own + column] -= 1; });
  return {log(denominator) - target, dlogits};  // of shifted logits, the same as of the logits
}

namespace {
const Registered registered(answer("solution", answers));
}

}  // namespace trireme::labs::tensor_parallel::solution
